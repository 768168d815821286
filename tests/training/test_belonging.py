"""Files that belong together: what was edited, mixed up or lost since it was written is noticed."""

import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from attacks import walk
from test_runs import metrics

import statewise
from statewise.cli import main
from statewise.runs import checkpoint, files
from statewise.runs.export import export_runs
from statewise.runs.folder import RunFolder, RunFolderError
from statewise.runs.identity import id_of, policy_sha256
from statewise.runs.journal import Journal
from statewise.runs.reader import find_runs, read_config
from statewise.training.policy import hash_policy


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two finished runs of three epochs, of seeds 0 and 1."""
    out = tmp_path_factory.mktemp("runs")
    return [walk.train(out, seed=seed, keep_checkpoints=3, algo="cpo") for seed in (0, 1)]


@pytest.fixture
def run(runs: list[Path], tmp_path: Path) -> Path:
    """A copy of the first."""
    return Path(shutil.copytree(runs[0], tmp_path / "run"))


def cut_back(run: Path) -> None:
    """As if the last checkpoint had not been written."""
    checkpoint.latest(run / "checkpoints")[0].unlink()


def verify(run: Path) -> int:
    try:
        return main(["verify", str(run)])
    except SystemExit as status:
        return int(str(status.code))


def edit_config(**values: Any) -> Callable[[Path], None]:
    def edit(run: Path) -> None:
        config = json.loads((run / "config.json").read_text())
        for name, value in values.items():
            part = "train" if name in config["train"] else "algorithm"
            config[part][name] = value
        (run / "config.json").write_text(json.dumps(config))

    return edit


def edit_lines(name: str, change: Callable[[list[str]], list[str]]) -> Callable[[Path], None]:
    def edit(run: Path) -> None:
        lines = (run / name).read_text().splitlines(keepends=True)
        (run / name).write_text("".join(change(lines)))

    return edit


MIXED_UP: dict[str, tuple[Callable[[Path], object], str]] = {
    "target_kl edited": (edit_config(target_kl=0.5), r"config\.json was changed"),
    "gamma edited": (edit_config(gamma=0.5), r"config\.json was changed"),
    "cost_limit edited": (edit_config(cost_limit=[1.0]), r"config\.json was changed"),
    "seed edited": (edit_config(seed=1), r"config\.json was changed"),
    "episodes deleted": (lambda run: (run / "episodes.csv").unlink(), r"episodes\.csv is missing"),
    "episodes emptied": (edit_lines("episodes.csv", lambda x: []), r"episodes\.csv is shorter"),
    "episode dropped": (
        edit_lines("episodes.csv", lambda x: x[:1] + x[2:]), r"episodes\.csv (was changed|is shorter)",
    ),
    "episode doubled": (edit_lines("episodes.csv", lambda x: x[:2] + x[1:]), r"episodes\.csv was"),
    "episode zeroed": (
        edit_lines("episodes.csv", lambda x: [x[0], "\0" * (len(x[1]) - 1) + "\n", *x[2:]]),
        r"episodes\.csv was changed",
    ),
    "epoch edited": (
        edit_lines("metrics.jsonl", lambda x: [x[0].replace("cost", "cast"), *x[1:]]),
        r"metrics\.jsonl was changed",
    ),
    "metrics deleted": (lambda run: (run / "metrics.jsonl").unlink(), r"metrics\.jsonl is missing"),
}  # fmt: skip


@pytest.mark.parametrize("what", MIXED_UP)
def test_a_run_whose_files_were_changed_is_not_continued_and_the_file_is_named(
    run: Path, what: str
) -> None:
    change, said = MIXED_UP[what]
    cut_back(run)
    change(run)
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file() and p.name != "lock"}
    with pytest.raises(RunFolderError, match=said):
        statewise.resume(run, quiet=True)
    assert all(path.read_bytes() == content for path, content in before.items())
    assert verify(run) == 1


def test_the_checkpoint_of_another_run_is_refused(runs: list[Path], run: Path) -> None:
    other = checkpoint.latest(runs[1] / "checkpoints")[0]
    shutil.copy(other, run / "checkpoints")
    for use in (statewise.resume, statewise.load_policy):
        with pytest.raises(RunFolderError, match=r"epoch-00003\.ckpt is of another run"):
            use(run)


def test_settings_that_change_nothing_that_is_learned_may_be_edited(run: Path) -> None:
    cut_back(run)
    edit_config(checkpoint_every=5, out="elsewhere", tensorboard=False)(run)
    assert metrics(statewise.resume(run, quiet=True))[-1]["epoch"] == 3


def test_a_continued_run_is_to_the_byte_the_one_that_was_never_stopped(
    runs: list[Path], run: Path
) -> None:
    cut_back(run)
    statewise.resume(run, quiet=True)
    assert metrics(run) == metrics(runs[0])
    assert (run / "episodes.csv").read_bytes() == (runs[0] / "episodes.csv").read_bytes()
    assert verify(run) == 0


# Checkpoints that are whole, and of no use -----------------------------------------------------


def rewrite(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the content of a checkpoint, with a hash that is right."""
    state = checkpoint.load(path)
    changed = change(state)
    checkpoint.save(path, state if changed is None else changed)


UNUSABLE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no epoch": lambda s: s.pop("epoch") and None,
    "another epoch": lambda s: s.update(epoch=2),
    "no algorithm": lambda s: s.pop("algo") and None,
    "text for steps": lambda s: s.update(steps="many"),
    "negative steps": lambda s: s.update(steps=-1),
    "no files": lambda s: s.pop("files") and None,
    "files of no form": lambda s: s.update(files={"metrics.jsonl": 3, "episodes.csv": None}),
    "costs of other constraints": lambda s: s.update(cost_total=[0.0, 0.0]),
    "best of no form": lambda s: s.update(best="x"),
    "no policy": lambda s: s["algo"]["modules"].pop("policy") and None,
    "weights of another shape": lambda s: s["algo"]["modules"]["policy"].update(
        {"log_std": torch.zeros(7)}
    ),
    "text for the optimiser": lambda s: s["algo"].update(critics="x"),
    "no worlds": lambda s: s["collector"].update(env={}),
    "ages of other worlds": lambda s: s["collector"].update(age=torch.zeros(3)),
    "generator of no form": lambda s: s["collector"].update(generator=torch.zeros(3)),
}


@pytest.mark.parametrize("what", UNUSABLE)
def test_a_checkpoint_that_does_not_load_is_passed_over_with_a_warning(
    runs: list[Path], run: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    newest = checkpoint.latest(run / "checkpoints")[0]
    rewrite(newest, UNUSABLE[what])
    statewise.resume(run, quiet=True)
    assert "epoch-00003.ckpt" in caplog.text and "trying the one before" in caplog.text
    assert metrics(run) == metrics(runs[0])
    assert newest.with_suffix(".unread").exists()


def test_a_policy_is_loaded_from_the_newest_checkpoint_that_works(
    run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rewrite(checkpoint.latest(run / "checkpoints")[0], UNUSABLE["weights of another shape"])
    source = statewise.load_policy(run).source
    assert source is not None and source.checkpoint == "epoch-00002.ckpt"
    assert "epoch-00003.ckpt does not fit the run" in caplog.text


def test_a_checkpoint_that_is_no_state_at_all_is_passed_over(run: Path) -> None:
    newest = checkpoint.latest(run / "checkpoints")[0]
    buffer = io.BytesIO()
    torch.save([1, 2], buffer)
    body = buffer.getvalue()
    head = f"statewise checkpoint format {checkpoint.FORMAT} sha256 {hashlib.sha256(body).hexdigest()}\n"
    for content in (head.encode() + body, head.encode(), b""):
        newest.write_bytes(content)
        assert RunFolder.open(run).load(lambda path, state: path.name) == "epoch-00002.ckpt"


# Identity and verify ---------------------------------------------------------------------------


def test_the_hash_of_a_policy_covers_what_decides_its_actions_and_nothing_else(run: Path) -> None:
    state = checkpoint.load(checkpoint.latest(run / "checkpoints")[0])["algo"]
    given: dict[str, Any] = {"algo_state": state, "settings": {"slack": 0.0}, "epochs": 3}
    first = policy_sha256(**given)
    state["generator"], state["critics"] = None, None
    assert policy_sha256(**given) == first
    assert policy_sha256(**given | {"settings": {"slack": 0.1}}) != first
    assert policy_sha256(**given | {"epochs": 4}) != first
    assert policy_sha256(**given | {"algo_state": state | {"extra": {"margin": 1.0}}}) != first
    state["modules"]["policy"]["log_std"][0] += 1e-6
    assert policy_sha256(**given) != first


@pytest.mark.parametrize(
    ("algo", "change"), [("trpo_sl", "slack"), ("trpo_usl", "correction_rate")]
)
def test_safety_layers_that_correct_otherwise_have_other_hashes(
    tmp_path: Path, algo: str, change: str
) -> None:
    """Their networks are the same before the first update, and their actions differ."""
    hashes = set()
    for value in (0.0, 0.5):
        path = walk.train(tmp_path / str(value), algo=algo, **{change: value})
        first = min((path / "checkpoints").glob("epoch-*.ckpt"))
        source = statewise.load_policy(first).source
        assert source is not None
        hashes.add(source.sha256)
    assert len(hashes) == 2


def test_an_evaluation_names_run_checkpoint_epoch_and_hash(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    assert main(["evaluate", str(run), "--episodes", "1", "--json", str(out)]) == 0
    assert json.loads(out.read_text())["policy"] == {
        "run": id_of(read_config(run)),
        "checkpoint": "epoch-00003.ckpt",
        "epoch": 3,
        "sha256": hash_policy(statewise.load_policy(run).algo),
    }


def test_two_runs_have_two_ids(runs: list[Path]) -> None:
    assert id_of(read_config(runs[0])) != id_of(read_config(runs[1]))


def test_verify_says_that_a_run_is_whole_and_names_what_is_not(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(run) == 0
    assert "verified" in capsys.readouterr().out
    middle = run / "checkpoints" / "epoch-00002.ckpt"
    middle.write_bytes(middle.read_bytes()[:-1])
    edit_lines("episodes.csv", lambda x: x[:-1])(run)
    assert verify(run) == 1
    said = capsys.readouterr().out
    assert "3 of" in said and "epoch-00002.ckpt" in said and "episodes.csv" in said


def test_verify_checks_an_export(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder,) = export_runs(find_runs([runs[0]]).runs, tmp_path / "export")
    assert main(["verify", str(folder)]) == 0
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps(summary | {"sim_faults": 9}))
    assert verify(folder) == 1
    assert "1 of 5 checks failed" in capsys.readouterr().out


@pytest.mark.parametrize(("given", "said"), [(["nowhere"], "no such"), (["."], "none of these")])
def test_verify_refuses_what_is_neither(
    given: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(["verify", *given]) == 2
    assert said in capsys.readouterr().err


def test_an_epoch_costs_no_more_in_a_long_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hash of a journal is carried along: nothing that was written is read again."""
    journal = Journal(tmp_path / "long")
    monkeypatch.setattr(files, "open_regular", None)
    for number in range(3):
        journal.append(f"{number}\n")
        content = (tmp_path / "long").read_bytes()
        assert journal.mark() == {
            "lines": number + 1,
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
    journal.close()


def test_a_journal_that_is_a_link_is_not_written_to(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine\n")
    os.symlink(target, tmp_path / "link")
    with pytest.raises(ValueError, match="is a link"):
        Journal(tmp_path / "link").append("theirs\n")
    with pytest.raises(ValueError, match="is a link"):
        Journal(tmp_path / "link").rewind(None)
    assert target.read_text() == "mine\n"


@pytest.mark.parametrize("command", ["report", "plot", "verify"])
@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b'{"steps": "x"}', "steps"),
        (b"[" * 100_000, "summary"),
        (b"\xff\xfe", "summary"),
        (b'{"steps": ' + b"9" * 5000 + b"}", "summary"),
    ],
)
def test_a_summary_that_cannot_be_used_is_named_by_every_command(
    runs: list[Path],
    tmp_path: Path,
    command: str,
    content: bytes,
    told: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (folder,) = export_runs(find_runs([runs[0]]).runs, tmp_path / "export")
    written = json.loads((folder / "summary.json").read_text())
    whole = json.dumps(written | json.loads(content)).encode() if told == "steps" else content
    (folder / "summary.json").write_bytes(whole)
    assert main([command, str(folder)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "summary.json" in said and told in said


def test_a_picture_without_a_name_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.iterdir())
    for out in ("", ".png", "curves"):
        assert main(["plot", str(run), "--out", out]) == 2
        assert "--out" in capsys.readouterr().err
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["train", "Point-Hazard-8", "--seed", str(2**64)], "0 to 4294967295"),
        (["train", "Point-Hazard-8", "--threads", "100000"], "0 to 1024"),
        (["bench", "grid", "--gpus-per-run", "inf", "--dry-run"], "0 to 64"),
    ],
)
def test_numbers_without_bounds_are_refused_with_the_range(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert told in capsys.readouterr().err
