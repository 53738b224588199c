import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from fedlangevin_mpi.data.partition import Dirichlet, Iid, LabelSplit, Partition, PartitionRule, Unequal, partitions
from fedlangevin_mpi.errors import ConfigError

LABELS = np.repeat(np.arange(10), 100)


def owners(rule, labels=LABELS, clients=20, seed=0):
    return rule.assign(labels, clients, np.random.default_rng(seed))


def sizes(rule, labels=LABELS, clients=20, seed=0):
    return np.bincount(owners(rule, labels, clients, seed), minlength=clients)


def by_label(rule, clients=20, seed=0):
    """Rows of label y at client i, as (labels, clients)."""
    table = np.zeros((10, clients), int)
    np.add.at(table, (LABELS, owners(rule, clients=clients, seed=seed)), 1)
    return table


@pytest.mark.parametrize("rule", [Iid(), Dirichlet(), LabelSplit(), Unequal(ratio=0.8)], ids=lambda rule: rule.name)
def test_every_row_has_one_owner_the_same_from_the_same_key(rule):
    first = owners(rule)
    assert first.shape == LABELS.shape
    assert np.issubdtype(first.dtype, np.integer)
    assert set(first) == set(range(20))
    np.testing.assert_array_equal(first, owners(rule))
    assert (first != owners(rule, seed=1)).any()


def test_iid_sizes_differ_by_at_most_one():
    assert sorted(sizes(Iid(), LABELS[:103], 10)) == [10] * 7 + [11] * 3


def test_iid_deals_every_row_to_every_client_equally_often():
    hits = np.mean([owners(Iid(), LABELS[:12], 3, seed) == 0 for seed in range(2000)], axis=0)
    np.testing.assert_allclose(hits, 1 / 3, atol=4 * np.sqrt(2 / 9 / 2000))


def test_dirichlet_shares_follow_the_law():
    # A label's share at a client has mean 1/b, variance (1/b)(1 - 1/b)/(b a + 1); cutting moves it by 1/100 at most.
    b, a, tries = 4, 0.5, 400
    shares = np.concatenate([by_label(Dirichlet(concentration=a), b, seed) / 100 for seed in range(tries)])
    variance = (1 / b) * (1 - 1 / b) / (b * a + 1)
    np.testing.assert_allclose(shares.mean(0), 1 / b, atol=4 * np.sqrt(variance / len(shares)))
    np.testing.assert_allclose(shares.var(0), variance, rtol=0.06)


def test_dirichlet_labels_are_dealt_independently():
    first, second = np.stack([by_label(Dirichlet(), 2, seed)[:2, 0] for seed in range(400)], axis=1)
    assert abs(np.corrcoef(first, second)[0, 1]) < 4 / np.sqrt(400)


def test_a_large_concentration_gives_equal_shares():
    np.testing.assert_array_equal(by_label(Dirichlet(concentration=1e9)), 5)


def test_a_small_concentration_gives_a_label_to_one_client():
    table = by_label(Dirichlet(concentration=1e-3), 3)
    assert (table.max(axis=1) >= 99).sum() >= 9


@pytest.mark.parametrize("rule", [Dirichlet(), LabelSplit()], ids=lambda rule: rule.name)
def test_continuous_targets_are_refused_where_labels_are_needed(rule):
    with pytest.raises(ConfigError, match=rf"data\.partition: found {rule.name} for continuous targets \(float64\)"):
        owners(rule, np.linspace(0, 1, 50), 2)


def test_label_split_is_the_papers():
    # 80 of 100 rows to clients y and y + 10, 40 each; the other 200 rows evenly to 20 clients, one a label.
    expected = np.ones((10, 20), int)
    for label in range(10):
        expected[label, [label, label + 10]] += 40
    table = by_label(LabelSplit())
    np.testing.assert_array_equal(table.sum(0), 50)
    np.testing.assert_array_equal(table, expected)


def test_label_split_fraction():
    table = by_label(LabelSplit(fraction=0.5), clients=10)
    np.testing.assert_array_equal(np.diag(table), 50 + 5)
    assert table.sum() == 1000


def test_label_split_goes_by_the_order_of_labels_that_need_not_count_from_zero():
    found = owners(LabelSplit(fraction=1), np.repeat([7, 3], 6), 4)
    assert set(found[:6]) == {1, 3}  # label 7 is the second
    assert set(found[6:]) == {0, 2}


def test_label_split_needs_a_client_a_label():
    with pytest.raises(ConfigError, match="10 labels among 9 clients; allowed: at least one client a label"):
        owners(LabelSplit(), clients=9)


def test_unequal_proportions():
    assert list(sizes(Unequal(proportions=(1, 2, 7)), clients=3)) == [100, 200, 700]


def test_unequal_ratio():
    assert list(sizes(Unequal(ratio=0.5), LABELS[:700], 3)) == [400, 200, 100]


def test_unequal_rows_are_drawn_uniformly():
    hits = np.mean([owners(Unequal(proportions=(1, 3)), LABELS[:8], 2, seed) == 0 for seed in range(2000)], axis=0)
    np.testing.assert_allclose(hits, 1 / 4, atol=4 * np.sqrt(3 / 16 / 2000))


def test_unequal_needs_one_proportion_a_client():
    with pytest.raises(ConfigError, match=r"data\.partition\.proportions: found 2 for 3 clients"):
        owners(Unequal(proportions=(1, 2)), clients=3)


@pytest.mark.parametrize("given", [{}, {"ratio": 0.5, "proportions": (1, 1)}], ids=["neither", "both"])
def test_unequal_takes_one_of_ratio_and_proportions(given):
    with pytest.raises(ValidationError, match=r"found (neither|both).*allowed: one of them"):
        Unequal(**given)


def test_an_empty_client_takes_the_last_row_of_the_largest():
    class Fixed(PartitionRule):
        name: str = "fixed"

        def draw(self, labels, clients, generator):
            return np.array([1, 1, 1, 3, 3, 3, 3])

    # Clients 0 and 2 are empty: 0 takes row 6 of client 3 (4 rows), 2 takes row 2 of client 1 (first with 3 rows).
    assert list(owners(Fixed(), np.zeros(7), 4)) == [1, 1, 2, 3, 3, 3, 0]


@pytest.mark.parametrize("rule", [Iid(), Dirichlet(concentration=1e-3), LabelSplit(), Unequal(ratio=0.1)])
def test_every_client_gets_a_row_even_where_rows_are_as_few_as_clients(rule):
    assert list(sizes(rule, np.arange(10) % 2, 10)) == [1] * 10


def test_fewer_rows_than_clients_are_refused():
    with pytest.raises(ConfigError, match="iid of 3 training rows among 4 clients; allowed: at least one row a client"):
        owners(Iid(), np.arange(3), 4)


def test_the_union_holds_every_partition():
    assert set(partitions()) == {"iid", "dirichlet", "label_split", "unequal"}
    assert all(rule.summary for rule in partitions().values())
    union = TypeAdapter(Partition)
    assert union.validate_python({"name": "dirichlet", "concentration": 2}) == Dirichlet(concentration=2)
    with pytest.raises(ValidationError, match="fraction"):
        union.validate_python({"name": "iid", "fraction": 0.5})
    with pytest.raises(ValidationError, match="greater than 0"):
        union.validate_python({"name": "dirichlet", "concentration": 0})
