#!/usr/bin/python3
"""Runs a command at a terminal of its own, as a user would, and prints what the terminal shows.

usage: at-terminal.py [FILE BYTES] -- COMMAND...; as soon as FILE has so many bytes, Ctrl-C is typed. Exits as the command
does, 128 + N where signal N ended it, 3 where FILE did not come within a minute."""
import os
import pty
import select
import signal
import sys
import time


def size(path):
    return os.stat(path).st_size if os.path.exists(path) else 0


def main():
    before = sys.argv.index("--")
    typed, command = sys.argv[1:before], sys.argv[before + 1:]
    child, terminal = pty.fork()
    if not child:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.execvp(command[0], command)
    last = time.time() + 60
    while True:
        if typed and size(typed[0]) >= int(typed[1]):
            typed = None
            os.write(terminal, b"\x03")
        if typed and time.time() > last:
            os.kill(child, signal.SIGKILL)
        if select.select([terminal], [], [], 0.02)[0]:
            try:
                shown = os.read(terminal, 4096)
            except OSError:             # the other side is closed
                break
            if not shown:
                break
            os.write(1, shown)
    status = os.waitpid(child, 0)[1]
    if typed:
        return 3
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


sys.exit(main())
