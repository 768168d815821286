"""Named sets of settings: `--preset paper`, `--preset reference`, `--preset best`.

paper: as the SCPO paper's text and table say. reference: as its published code does, where that differs.
best: settings that should be stronger than the published ones. They come from single short runs and have
not been tuned over seeds. For the methods that take a constrained step they are the defaults.
"""

from typing import Any

from statewise.settings import unknown

Values = dict[str, Any]

_PAPER: Values = {
    "num_envs": 30,
    "spread_ages": False,
    "steps_per_epoch": 30_000,
    "final_batch": 1,
    "margin": (),
    "hidden": (64, 64),
    "scale_inputs": False,
    "log_std": -0.5,
    "gamma": 0.99,
    "lam": 0.97,
    "critic_iterations": 80,
    "critic_lr": 1e-3,
    "critic_batch": 0,
    "target_kl": 0.02,
    "final_radius": 1.0,
    "least_noise": 0.0,
    "final_noise": 0.0,
    "backtrack_steps": 100,
    "backtrack_coefficient": 0.8,
    "cg_iterations": 100,
    "cg_damping": 0.0,
    "fisher_states": 0,
}
"""What the paper's table has for every method. Its conjugate gradient is that of its code."""

_LIMIT: Values = {"cost_limit": (0.0,)}
_COST: Values = _LIMIT | {"cost_gamma": 0.99, "cost_lam": 0.97}
_STEP: Values = _COST | {
    "cost_critic_lr": 1e-3,
    "first_cost": 0.0,
    "cost_feedback": 0.0,
    "tightening": 0.0,
    "tolerance": 0.0,
    "recovery_fraction": 1.0,
    "reward_test": "paper",
    "cost_reduction": 0.0,
    "rescue": False,
}
_SCPO: Values = _STEP | {"constraint_kind": ("maximum",), "subsample": "resample"}
_CODE: Values = {"cost_limit": (-0.03,), "allow_negative_limit": True, "cost_lam": 0.95}

PRESETS: dict[str, dict[str, Values]] = {
    "scpo": {
        "paper": _PAPER | _SCPO,
        "reference": _PAPER | _SCPO | _CODE | {"reward_test": "reference"},
        "best": {},
    },
    "ascpo": {
        "paper": _PAPER | _SCPO,
        "reference": _PAPER | _SCPO | _CODE | {"reward_test": "reference"},
        "best": {},
    },
    "cpo": {
        "paper": _PAPER | _STEP,
        "reference": _PAPER | _STEP | {"reward_test": "reference"},
        "best": {},
    },
    "pcpo": {
        "paper": _PAPER | _STEP | {"keep_region": False, "projection": "kl"},
        "reference": _PAPER | _STEP | {"keep_region": False, "projection": "kl"},
        "best": {},
    },
    "trpo": {"paper": _PAPER, "reference": _PAPER, "best": {}},
    "trpo_lag": {
        "paper": _PAPER | _COST | {"multiplier_lr": 0.005, "multiplier_start": 0.0},
        "reference": _PAPER | _COST | {"multiplier_lr": 0.005, "multiplier_start": 0.0},
        "best": {"multiplier_lr": 0.5, "multiplier_proportional": 5.0},
    },
    "trpo_fac": {
        "paper": _PAPER | _COST | {"multiplier_lr": 1e-4, "multiplier_iterations": 1},
        "reference": _PAPER | _COST | {"multiplier_lr": 1e-4, "multiplier_iterations": 1},
        "best": {"multiplier_lr": 1e-3, "multiplier_iterations": 80},
    },
    "trpo_ipo": {
        "paper": _PAPER | _COST | {"t": 0.01, "barrier": "published"},
        "reference": _PAPER | _COST | {"t": 0.01, "barrier": "published"},
        "best": {"per_step": True},
    },
    "trpo_sl": {
        "paper": _PAPER | _LIMIT | {"slack": 0.0, "warmup": 1 / 3, "signal": "cost"},
        "reference": _PAPER | _LIMIT | {"slack": 0.0, "warmup": 1 / 3, "signal": "cost"},
        "best": {"signal": "clearance"},
    },
    "trpo_usl": {
        "paper": _PAPER | _LIMIT | {"slack": 0.0, "correction_steps": 20, "correction_rate": 0.05,
                                    "warmup": 1 / 3, "penalty": 0.0, "cost_gamma": 0.99},
        "reference": _PAPER | _LIMIT | {"slack": 0.0, "correction_steps": 20,
                                        "correction_rate": 0.05, "warmup": 1 / 3, "penalty": 0.0,
                                        "cost_gamma": 0.99},
        "best": {"penalty": 5.0},
    },
}  # fmt: skip
"""Settings of the training and of the algorithm together, by algorithm and preset."""


def find_preset(algo: str, name: str) -> Values:
    """The settings of a preset; an unknown one raises ValueError with the closest."""
    known = PRESETS.get(algo, {})
    if name not in known:
        raise ValueError(unknown("preset", name, known, algo))
    return known[name]
