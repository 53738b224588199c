from types import SimpleNamespace
from typing import Literal

from pydantic import BaseModel

from fedlangevin_mpi.data.shard import DataSource
from fedlangevin_mpi.registry import choices, discover


class Base(BaseModel):
    name: str


class One(Base):
    name: Literal["one"] = "one"


class Several(Base):
    name: Literal["two", "three"]


class Stranger(BaseModel):
    name: Literal["stranger"] = "stranger"


def test_a_class_is_found_under_each_of_its_names():
    namespace = vars(SimpleNamespace(base=Base, one=One, several=Several, stranger=Stranger, number=3))
    assert choices(Base, namespace) == {"one": One, "two": Several, "three": Several}


def test_all_modules_of_a_package_are_searched():
    found = discover(DataSource, "fedlangevin_mpi.data")
    assert {"files", "titanic", "iris", "synthetic_gaussian"} <= found.keys()
    assert list(found) == sorted(found)
