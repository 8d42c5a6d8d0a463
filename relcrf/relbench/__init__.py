"""Models and manifests for the tasks of RelBench, from files in its format."""

from relcrf.relbench.model import TaskModel, convert_task

__all__ = ["TaskModel", "convert_task"]
