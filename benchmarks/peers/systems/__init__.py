"""Pellucid and the other systems of the benchmark."""

from collections.abc import Mapping

from benchmarks.peers.systems.eole import Eole
from benchmarks.peers.systems.joeynmt import JoeyNMT
from benchmarks.peers.systems.opennmt import OpenNMT
from benchmarks.peers.systems.pellucid import Pellucid
from benchmarks.peers.systems.system import System
from benchmarks.peers.systems.yoyodyne import Yoyodyne

SYSTEMS: Mapping[str, System] = {
    system.name: system for system in (Pellucid(), JoeyNMT(), OpenNMT(), Eole(), Yoyodyne())
}
"""Systems by name, in the order of the table."""
