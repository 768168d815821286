"""Run folders: the files of a run, written so that they survive any crash, and one reader for them."""
