"""Tests of verdicts."""

import pytest

from relcrf.inference.result import Verdict, worst_verdict


def test_the_worst_status_is_that_of_combined_results():
    verdicts = [
        Verdict("converged", 3, 0.1),
        Verdict("exact"),
        Verdict("not converged", 2, 0.5, "a"),
        Verdict("diverged"),
    ]
    assert worst_verdict([]) == worst_verdict(verdicts[1:2]) == Verdict("exact")
    assert worst_verdict(verdicts[:2]) == worst_verdict(verdicts[1::-1]) == Verdict("converged", 3, 0.1)
    assert worst_verdict(verdicts[:3]) == Verdict("not converged", 3, 0.5, "a")
    assert worst_verdict([verdicts[2], Verdict("not converged", 9, 0.2, "b"), verdicts[2]]).remark == "a; b"
    assert str(Verdict("exact", remark="of some variables")) == "exact; of some variables"
    with pytest.raises(KeyboardInterrupt):
        worst_verdict([Verdict("interrupted", 1), *verdicts]).raise_if_interrupted()
