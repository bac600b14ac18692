#!/usr/bin/python3
"""Runs a command at a terminal of its own, as a user would, and prints what the terminal shows.

usage: at-terminal.py [FILE BYTES] -- COMMAND...; as soon as FILE has so many bytes, Ctrl-C is typed.
       at-terminal.py --keys SHOWN KEYS [SHOWN KEYS]... -- COMMAND...; as soon as the terminal shows the text SHOWN, behind
       the one before it, KEYS are typed: \\n is Return, ^C and ^D are those keys.
Exits as the command does, 128 + N where signal N ended it, 3 where FILE or SHOWN did not come within a minute."""
import os
import pty
import select
import signal
import sys
import time


def size(path):
    return os.stat(path).st_size if os.path.exists(path) else 0


def keys(text):
    return text.replace("\\n", "\r").replace("^C", "\x03").replace("^D", "\x04").encode()


def main():
    before = sys.argv.index("--")
    typed, command = sys.argv[1:before], sys.argv[before + 1:]
    script = typed[1:] if typed[:1] == ["--keys"] else []
    typed = [] if script else typed
    screen = b""
    child, terminal = pty.fork()
    if not child:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.execvp(command[0], command)
    last = time.time() + 60
    while True:
        if typed and size(typed[0]) >= int(typed[1]):
            typed = None
            os.write(terminal, b"\x03")
        if script and script[0].encode() in screen:
            screen = screen.split(script[0].encode(), 1)[1]
            os.write(terminal, keys(script[1]))
            script = script[2:]
        if (typed or script) and time.time() > last:
            os.kill(child, signal.SIGKILL)
        if select.select([terminal], [], [], 0.02)[0]:
            try:
                shown = os.read(terminal, 4096)
            except OSError:             # the other side is closed
                break
            if not shown:
                break
            os.write(1, shown)
            screen += shown
    status = os.waitpid(child, 0)[1]
    if typed or script:
        return 3
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


sys.exit(main())
