"""Receive from many sockets with one system call: io_uring with receives that stay in effect.

The kernel copies what arrives, with its timestamp, into shared buffers, and lists it in a queue in shared memory. Linux
has this since 6.1; containers and some distributions do not allow it.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import select
import struct
from functools import partial
from typing import Protocol

from swarmtui.loadgen.clock import ANCILLARY_BYTES, KernelClock
from swarmtui.loadgen.event_loop import READ, EventLoop
from swarmtui.loadgen.kept_reads import KEPT_BYTES, KeptReads

# The numbers and flags of the kernel's interface. System calls have these numbers on all architectures that Python has
# wheels for.
_SETUP, _ENTER, _REGISTER = 425, 426, 427
_REGISTER_EVENTFD, _REGISTER_BUFFER_RING = 4, 22
_ENTER_GETEVENTS, _ENTER_EXT_ARG = 1 << 0, 1 << 3
_SETUP_CQSIZE, _SETUP_SINGLE_ISSUER, _SETUP_DEFER_TASKRUN = 1 << 3, 1 << 12, 1 << 13
_SQES_OFFSET = 0x10000000
_OP_RECVMSG, _SELECT_BUFFER, _POLL_FIRST, _MULTISHOT = 10, 1 << 5, 1 << 0, 1 << 1
_HAS_BUFFER, _STAYS_IN_EFFECT = 1 << 0, 1 << 1

_SUBMISSION = struct.Struct("=BBHiQQIIQH22x")
_COMPLETION = struct.Struct("=QiI")
_BUFFER = struct.Struct("=QIHH")
_MESSAGE_HEADER = struct.Struct("=QI4xQQQQI4x")
# What precedes the data in a buffer: the sizes of the ancillary data and of the data, and the timestamp.
_RECEIVED = struct.Struct("=4xII20xqq")
_HEADER_BYTES = 16 + ANCILLARY_BYTES

_SUBMISSIONS, _COMPLETIONS = 64, 8192

# So many reads are taken at once, a power of two. Their buffers, used again for the next ones, remain in the
# processor's cache; their distance is an odd number of cache lines, so that they do not compete for the same places.
_BUFFERS = 512
_BUFFER_BYTES = 4096 + 5 * 64
# Up to this many reads the kernel takes without being asked to.
_FEW_READS = 20


class Receiver(Protocol):
    """Has a socket, and takes its reads: with the kernel's timestamp if there is one, and no data at its end."""

    fd: int
    kept: KeptReads

    def received(self, t: int | None, data: bytes) -> None: ...
    def receive_failed(self, code: int) -> None: ...
    def deliver(self) -> None: ...


class ReceiveRing:
    """Adds each read to those that its receiver keeps, and tells it when they are to be delivered.

    Raises OSError where the kernel has no such rings, or does not allow them.
    """

    def __init__(self, loop: EventLoop, clock: KernelClock) -> None:
        self._loop, self._clock = loop, clock
        self._receivers: dict[int, Receiver] = {}
        self._kept: dict[int, KeptReads] = {}
        self._last_key = self._buffers_tail = 0
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        self._syscall.argtypes, self._syscall.restype = [ctypes.c_long] * 7, ctypes.c_long
        params = (ctypes.c_uint32 * 30)()
        params[1], params[2] = _COMPLETIONS, _SETUP_CQSIZE | _SETUP_SINGLE_ISSUER | _SETUP_DEFER_TASKRUN
        self._fd = self._call(_SETUP, _SUBMISSIONS, ctypes.addressof(params))
        try:
            self._map_queues(list(params))
            self._provide_buffers()
            self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            event = ctypes.c_int32(self._event)
            self._call(_REGISTER, self._fd, _REGISTER_EVENTFD, ctypes.addressof(event), 1)
        except OSError:
            os.close(self._fd)
            raise
        # The kernel reads these later, so they must stay where they are.
        self._message = ctypes.create_string_buffer(_MESSAGE_HEADER.pack(0, 0, 0, 0, 0, ANCILLARY_BYTES, 0))
        self._no_time = (ctypes.c_int64 * 2)(0, 0)
        no_wait = struct.pack("=QIIQ", 0, 0, 0, ctypes.addressof(self._no_time))
        self._no_wait = ctypes.create_string_buffer(no_wait, len(no_wait))
        # The kernel signals only what arrives after a first call.
        self._enter()
        # Edge-triggered, the event need not be read.
        loop.add_fd(self._event, READ | select.EPOLLET, self._on_ready)

    def add(self, receiver: Receiver) -> int:
        """Receive from a socket from now on; return the key to remove it."""
        self._last_key = key = self._last_key + 1
        self._receivers[key], self._kept[key] = receiver, receiver.kept
        self._start(key)
        return key

    def remove(self, key: int) -> None:
        """Receive no more. The kernel keeps the socket open until it is shut down."""
        del self._receivers[key], self._kept[key]

    def _start(self, key: int) -> None:
        words, tail = self._words, self._sq_tail
        _SUBMISSION.pack_into(
            self._submissions, (words[tail] & self._sq_mask) * _SUBMISSION.size, _OP_RECVMSG, _SELECT_BUFFER,
            _POLL_FIRST | _MULTISHOT, self._receivers[key].fd, 0, ctypes.addressof(self._message), 1, 0, key, 0,
        )  # fmt: skip
        words[tail] = (words[tail] + 1) & 0xFFFFFFFF
        try:
            self._call(_ENTER, self._fd, (words[tail] - words[self._sq_head]) & 0xFFFFFFFF)
        except OSError as error:
            # Not to be submitted with the next one: its file descriptor may then be that of another socket.
            words[tail] = words[self._sq_head]
            self._loop.call_soon(partial(self._fail, key, error.errno or 0))

    def _fail(self, key: int, code: int) -> None:
        if (receiver := self._receivers.get(key)) is not None:
            receiver.receive_failed(code)

    def _enter(self) -> None:
        """Let the kernel receive what has arrived, without waiting for more."""
        if len(self._kept) <= _FEW_READS:
            self._syscall(_ENTER, self._fd, 0, 0, _ENTER_GETEVENTS, 0, 0)
        else:
            at = ctypes.addressof(self._no_wait)
            self._syscall(_ENTER, self._fd, 0, _BUFFERS, _ENTER_GETEVENTS | _ENTER_EXT_ARG, at, len(self._no_wait))

    def _on_ready(self, events: int = READ) -> None:
        """Take what has arrived, at most one read for each buffer; the rest follows deferred."""
        self._enter()
        words = self._words
        head, tail = words[self._cq_head], words[self._cq_tail]
        start, count = head & self._cq_mask, (tail - head) & 0xFFFFFFFF
        queue, at = self._queues, self._completions + _COMPLETION.size * start
        to_end = self._cq_mask + 1 - start
        completions = queue[at : at + _COMPLETION.size * min(count, to_end)]
        if count > to_end:
            completions += queue[self._completions : self._completions + _COMPLETION.size * (count - to_end)]
        words[self._cq_head] = tail
        self._complete(completions)
        if count >= _BUFFERS:
            self._loop.call_soon(self._on_ready)

    def _complete(self, completions: bytes) -> None:
        memory, all_kept, clock, unpack = self._memory, self._kept, self._clock, _RECEIVED.unpack_from
        low, high = clock.low, clock.high
        second = start_of_second = -1
        returned = 0
        for key, result, flags in _COMPLETION.iter_unpack(completions):
            returned += flags & _HAS_BUFFER
            if result < 0:
                if result == -errno.ENOBUFS and key in all_kept:
                    self._start(key)
                else:
                    self._fail(key, -result)
                continue
            try:
                kept = all_kept[key]
            except KeyError:
                continue
            start = (flags >> 16) * _BUFFER_BYTES
            stamped, size, seconds, nanoseconds = unpack(memory, start)
            start += _HEADER_BYTES
            data = memory[start : start + size]
            if stamped and size:
                if seconds != second:
                    second, start_of_second = seconds, seconds * 1_000_000_000 - clock.offset
                t = start_of_second + nanoseconds
                if not low < t < high:
                    t = clock.recheck(t)
                    second, low, high = -1, clock.low, clock.high
                clock.last_stamp = t
                kept.append(t)
                kept.append(data)
                if not data.endswith(kept.end) or len(kept) >= kept.limit or size > KEPT_BYTES:
                    self._receivers[key].deliver()
            else:
                self._receivers[key].received(None, data)
            if size and not flags & _STAYS_IN_EFFECT and key in all_kept:
                self._start(key)
        self._return_buffers(returned)

    def _return_buffers(self, count: int) -> None:
        """Move the end of the queue from which the kernel takes buffers: they were taken in the order of their entries.

        It lies in the unused part of the first entry.
        """
        self._buffers_tail = (self._buffers_tail + count) & 0xFFFF
        self._buffer_queue[14:16] = self._buffers_tail.to_bytes(2, "little")

    def _map_queues(self, params: list[int]) -> None:
        entries, (sq_head, sq_tail, sq_mask, _, _, _, sq_array, *_) = params[0], params[10:20]
        cq_head, cq_tail, cq_mask, _, _, self._completions, *_ = params[20:30]
        size = max(sq_array + 4 * entries, self._completions + _COMPLETION.size * params[1])
        self._queues = mmap.mmap(self._fd, size)
        self._submissions = mmap.mmap(self._fd, _SUBMISSION.size * entries, offset=_SQES_OFFSET)
        self._words = words = memoryview(self._queues)[: size // 4 * 4].cast("I")
        self._sq_head, self._sq_tail, self._sq_mask = sq_head // 4, sq_tail // 4, words[sq_mask // 4]
        self._cq_head, self._cq_tail, self._cq_mask = cq_head // 4, cq_tail // 4, words[cq_mask // 4]
        for i in range(entries):
            words[sq_array // 4 + i] = i

    def _provide_buffers(self) -> None:
        self._memory = mmap.mmap(-1, _BUFFERS * _BUFFER_BYTES)
        self._buffer_queue = mmap.mmap(-1, _BUFFERS * _BUFFER.size)
        memory, queue = (ctypes.addressof(ctypes.c_char.from_buffer(m)) for m in (self._memory, self._buffer_queue))
        registration = ctypes.create_string_buffer(struct.pack("=QIHH24x", queue, _BUFFERS, 0, 0))
        self._call(_REGISTER, self._fd, _REGISTER_BUFFER_RING, ctypes.addressof(registration), 1)
        for i in range(_BUFFERS):
            _BUFFER.pack_into(self._buffer_queue, i * _BUFFER.size, memory + i * _BUFFER_BYTES, _BUFFER_BYTES, i, 0)
        self._return_buffers(_BUFFERS)

    def _call(self, number: int, *arguments: int) -> int:
        result: int = self._syscall(number, *arguments, *[0] * (6 - len(arguments)))
        if result < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return result
