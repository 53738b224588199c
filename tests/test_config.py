"""Configs: what is read, what is refused, and how the refusal reads."""

import pytest

from fedlangevin_mpi.config import dump_config, make_config, parse_config, read_config, to_yaml
from fedlangevin_mpi.errors import ConfigError

BASE = """
iterations: 100
algorithm: {name: fald, step_size: 1e-3}
model: {name: linear_regression, prior_scale: inf}
data: {name: diabetes}
"""


def test_yaml_numbers_mean_what_they_look_like():
    config = parse_config(BASE, ["warmup=10", "thin=3"])
    assert config.algorithm.step_size == 1e-3
    assert config.model.prior_scale == float("inf")
    assert config.draws == 30


def test_an_override_goes_to_its_dotted_key():
    config = parse_config(BASE, ["algorithm.step_size={name: polynomial, initial: 1e-2}", "output.directory=elsewhere"])
    assert config.algorithm.step_size.initial == 1e-2
    assert config.output.directory == "elsewhere"


def test_a_dumped_config_is_read_back_equal():
    config = parse_config(BASE, ["algorithm.step_size={name: polynomial, initial: 1e-2}", "data.standardize=pooled"])
    assert make_config(dump_config(config)) == config
    assert parse_config(to_yaml(dump_config(config))) == config


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("chainz=2", r"chainz: unknown key \(did you mean chains\?\); allowed: algorithm, chains"),
        ("algorithm.stepsize=1", r"algorithm.stepsize: unknown key \(did you mean step_size\?\); allowed: batch_size"),
        ("chains='4'", "chains: found '4'; allowed: integer"),
        ("chains=true", "chains: found True; allowed: integer"),
        ("seed=-1", "seed: found -1; allowed: greater than or equal to 0"),
        ("algorithm.step_size=-1", "algorithm.step_size: found -1; allowed: greater than 0 or a mapping"),
        (
            "algorithm.step_size={name: polynomial, initial: 0}",
            "algorithm.step_size.initial: found 0; allowed: greater",
        ),
        ("algorithm.communication_probability=0", "communication_probability: found 0; allowed: greater than 0"),
        (
            "algorithm.communication_probability=1.5",
            "communication_probability: found 1.5; allowed: less than or equal",
        ),
        ("algorithm.name=fold", "algorithm.name: found 'fold'; allowed: 'de_sghmc', "),
        ("model={}", "model.name: missing; allowed: custom, gaussian, "),
        ("model.prior_scale=0", "model.prior_scale: found 0; allowed: greater than 0"),
        ("warmup=101", r"warmup: found 101; allowed: at most iterations \(100\)"),
        (
            "data.partition={name: dirichlet, concentration: 0}",
            "data.partition.concentration: found 0; allowed: greater",
        ),
        ("device=cuda", "device: found 'cuda'; allowed: cpu, since model linear_regression"),
        ("iterations", "override 'iterations'; allowed: key=value"),
        ("iterations.x=1", "override 'iterations.x=1': iterations is 100, which has no keys"),
        ("seed=[1", "override 'seed=.1': not valid YAML"),
    ],
)
def test_a_wrong_value_is_refused_with_key_found_and_allowed(override, message):
    with pytest.raises(ConfigError, match=message) as refused:
        parse_config(BASE, [override])
    assert "PydanticUndefined" not in str(refused.value)


GOSSIP = ["algorithm={name: de_sgld, step_size: 1e-3}", "topology=topologies/ring.yaml"]


@pytest.mark.parametrize("topology", ["ring.yaml", "[ring.yaml, star.yaml]"])
def test_gossip_takes_one_topology_or_several(topology):
    config = parse_config(BASE, [GOSSIP[0], f"topology={topology}"])
    assert config.topologies == tuple(topology.strip("[]").split(", "))
    assert parse_config(to_yaml(dump_config(config))) == config


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (GOSSIP[:1], "topology: missing; allowed: a topology file, since de_sgld gossips"),
        (GOSSIP[1:], "topology: found 'topologies/ring.yaml'; allowed: absent, since fald does not gossip"),
        ([*GOSSIP, "topology=3"], "topology: found 3; allowed: string or array"),
        ([*GOSSIP, "topology=[]"], "topology: missing; allowed: a topology file"),
        (
            [*GOSSIP, "topology=[a.yaml, b.yaml]", "algorithm.schedule=pairwise"],
            "topology: found 2 files; allowed: one for schedule pairwise",
        ),
        ([*GOSSIP, "algorithm.schedule=gossip"], "algorithm.schedule: found 'gossip'; allowed: 'cyclic', 'random', "),
        ([*GOSSIP, "algorithm.exchange=mail"], "algorithm.exchange: found 'mail'; allowed: 'neighbor' or 'sendrecv'"),
        ([*GOSSIP, "algorithm.communication_interval=0"], "algorithm.communication_interval: found 0; allowed: gr"),
    ],
)
def test_a_topology_and_an_algorithm_must_fit(overrides, message):
    with pytest.raises(ConfigError, match=message):
        parse_config(BASE, overrides)


def test_two_clocks_are_refused():
    clocks = ["algorithm.communication_probability=0.5", "algorithm.communication_interval=2"]
    with pytest.raises(ConfigError, match="algorithm: communication_probability and communication_interval"):
        parse_config(BASE, clocks)


def test_a_batch_for_a_model_without_rows_is_refused():
    with pytest.raises(ConfigError, match="algorithm.batch_size: found 8; allowed: absent"):
        parse_config(
            BASE, ["model={name: gaussian}", "data={name: synthetic_gaussian, dim: 2}", "algorithm.batch_size=8"]
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\na: 2", "key 'a' is given twice"),
        ("!!python/object/apply:os.system ['true']", "not valid YAML"),
        ("- 1", "found list; allowed: a mapping"),
        ("a: [", "not valid YAML"),
    ],
)
def test_yaml_traps_are_errors(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_config(text)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="absent.yaml: No such file"):
        read_config(tmp_path / "absent.yaml")
