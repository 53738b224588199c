import pytest

from fedlangevin_mpi.runtime.run import _limit_torch


@pytest.mark.parametrize(("variable", "expected"), [(None, 3), ("2", 5)])
def test_torch_gets_the_ranks_share_of_cores_unless_told_otherwise(variable, expected, monkeypatch):
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if variable:
        monkeypatch.setenv("OMP_NUM_THREADS", variable)
    torch.set_num_threads(5)
    _limit_torch("3")
    found = torch.get_num_threads()
    torch.set_num_threads(before)
    assert found == expected
