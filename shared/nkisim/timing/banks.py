"""Banks of PSUM: who has them, who waits for them."""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from ..trace.footprint import Dependencies


class Banks:
    """Banks of PSUM, taken by whoever is the first to use a tile and free after the last one.

    What comes later in the program leaves a `share` of the banks to what comes before it.
    `need` has what each instruction takes, in bytes, as long as it is free; `tile`
    the tile that each instruction uses (-1: none, -2: `more` has several), `left` how many
    accesses a tile has before it; `users` of each tile that is not taken yet.
    """

    def __init__(self, deps: Dependencies, capacity: int, share: float):
        instr, version = deps.psum_instr, deps.psum_version
        self.size = np.minimum(deps.versions.bytes, capacity).tolist()
        self.left = np.bincount(version, minlength=len(self.size)).tolist()
        tile = np.full(len(deps.spec), -1)
        tile[instr] = version
        again = np.flatnonzero(np.diff(instr) == 0)  # an instruction with several accesses
        tile[instr[again]] = -2
        self.tile: list[int] = tile.tolist()
        self.more: dict[int, list[int]] = {i: [] for i in instr[again].tolist()}
        several = np.flatnonzero(tile[instr] == -2)
        for i, v in zip(instr[several].tolist(), version[several].tolist()):
            self.more[i].append(v)
        pairs = np.unique(version << 32 | instr)  # by tile, in program order
        user, of = pairs & 0xFFFFFFFF, pairs >> 32
        begin = np.flatnonzero(np.append(True, of[1:] != of[:-1])[: len(of)])
        users, ends = user.tolist(), [*begin[1:].tolist(), len(user)]
        self.users = {v: users[a:b] for v, a, b in zip(of[begin].tolist(), begin.tolist(), ends)}
        self.order = np.unique(user[begin]).tolist()  # the first ones in the program
        need = np.bincount(user, np.array(self.size)[of], len(deps.spec)).astype(np.int64)
        user = np.flatnonzero(np.bincount(user, minlength=len(deps.spec)))
        self.need: dict[int, int] = dict(
            zip(user.tolist(), np.minimum(need[user], capacity).tolist())
        )
        self.told: list[int] = []  # who need not wait any more
        self.oldest = 0
        self.free, self.reserve = capacity, int(capacity * share)
        self.coming: list[tuple[float, int, int]] = []  # (time, bytes, of whom) that will be free
        self.freed, self.freed_by = 0.0, -1  # when banks got free last, and who had them
        self.blocked: set[int] = set()
        self.trying = -1  # of those that wait, one at a time tries when a bank gets free
        self.forced = 0

    def take(self, i: int, at: float) -> float:
        """Take banks for instruction `i`: 0.0, or when to try again, or -1.0 (it will be told)."""
        coming = self.coming
        while coming and coming[0][0] <= at:
            self.freed, nbytes, self.freed_by = heappop(coming)
            self.free += nbytes
        first = self.order[self.oldest]
        oldest = first == i or first in self.need and self.tile[i] == self.tile[first] >= 0
        if self.free - self.need[i] < (0 if oldest else self.reserve):
            if coming and (oldest or self.trying in (-1, i)):
                if not oldest:
                    self.trying = i
                return coming[0][0]
            if self.trying == i:
                self.trying = -1
            self.blocked.add(i)
            return -1.0
        if self.trying == i:
            self.trying = -1
        self.free -= self.need[i]
        self._has(i)
        return 0.0

    def _has(self, i: int) -> None:
        """Note that instruction `i` has the banks of its tiles: no other has to take them."""
        need, blocked, tile = self.need, self.blocked, self.tile[i]
        for v in self.more[i] if tile == -2 else (tile,):
            for j in self.users.pop(v, ()):
                rest = need[j] - self.size[v] if self.tile[j] == -2 else 0
                if rest > 0:
                    need[j] = rest
                    continue
                need.pop(j, None)
                if self.trying == j:
                    self.trying = -1
                if j in blocked:
                    blocked.discard(j)
                    self.told.append(j)

    def awake(self) -> list[int]:
        """Return who may try now, after banks were taken."""
        order, before = self.order, self.oldest
        while self.oldest < len(order) and order[self.oldest] not in self.need:
            self.oldest += 1
        freed, self.told = self.told, []
        if not self.blocked:
            return freed
        if self.oldest != before and order[self.oldest] in self.blocked:
            freed.append(order[self.oldest])
            self.blocked.discard(order[self.oldest])
        if self.trying < 0 and self.blocked:
            freed.append(min(self.blocked))
            self.blocked.discard(freed[-1])
        return freed

    def release(self, i: int, done: float) -> list[int]:
        """Note that `i` is done with its tiles; return who may try then."""
        tile = self.tile[i]
        freed = False
        for t in self.more[i] if tile == -2 else (tile,):
            self.left[t] -= 1
            if not self.left[t]:
                heappush(self.coming, (done, self.size[t], i))
                freed = True
        if not freed or not self.blocked or self.trying >= 0:
            return []
        first = min(self.blocked)
        self.blocked.discard(first)
        return [first]

    def force(self) -> int:
        """Let the oldest waiting instruction go ahead, with banks that do not exist."""
        i = min(self.blocked)
        self.blocked.remove(i)
        self.forced += self.need[i]
        self.free += self.need[i] + self.reserve
        return i
