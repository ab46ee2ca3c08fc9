"""Launch scripts are read as Bash reads them: beside Bash itself, with a program that records its words."""

import json
import os
import pathlib
import random
import re
import subprocess
import unittest

from harness import InOwnFolder, program

CONSTRUCTS = pathlib.Path(os.environ["TESSERA_SOURCE"]) / "tests" / "data" / "shell" / "constructs.txt"
VALUES = ["a", "'b c'", "x.tar.gz", "/a/b/c.txt", "''", "7", "'a,b,,c'", "' lead trail '", "foo=bar", "k:v:w"]
PATTERNS = ["*", "?", "a*", "*.", "*/", "[a-c]", "[!a]", "[[:digit:]]", "?(a)b", "@(a|b)*", "+([a-z])", "!(a)"]
NUMBERS = ["0", "1", "2", "5", "-1", "N", "K", "N++", "--K", "(N += 2)", "${#X}", "${#A[@]}", "A[1]"]
WORDS = ["$X", '"$X"', "${Y:-d e}", '"${Z:+w v}"', "${#X}", "${X%@}", "${Y##@}", '"${X//@/R}"', '"${Y/#@/-}"', "${X^^}",
         '"${X: -2}"', '"${X:1:2}"', '"${A[@]}"', '"${A[*]}"', "${A[@]:1}", '"${!A[@]}"', "${#A[@]}", '"${A[-1]}"',
         '"${A[@]/@/Q}"', "${B[@]-none}", '"$@"', "$*", "${2}", "${@: -1}", "$((#))", "$[#]", '$(echo "$X"  z)', "$?",
         "`echo b q`", '"$(printf "%03d|%-4s" 5 "$Y")"', "{a,b}$Y", "x{1..3}", "~/d", "a=~/e", r"$'a\tb\x41'", "${!R}",
         '"${M[k]}"', '"${!M[@]}"', '"x${B[*]}y"', "${X@Q}"]
STATEMENTS = ["X=^", "Y=w", "Z+=^", "A=(w w)", "A+=(w)", "A[3]=^", "unset 'A[0]'", "unset X", "N=$((#))", "((N += K))",
              "M[k]=^", "set -- w w", "shift", "read -r X Y <<< ^", "IFS=, read -ra A <<< 'a,b c,,d'", "IFS=,", "unset IFS",
              "printf -v X '%s-%s' \"$Y\" b", "mapfile -t A < <(printf '%s\\n' a 'b c')", "R=Y", "set -euo pipefail; set +eu",
              "f ^ w", "declare -i N=2+3; N+=1", "if c; then p y; else p n; fi", "c && p y || p n", "c; p $?",
              "for v in w w; do p \"$v\"; done", "for ((i = 0; i < 2; i++)); do p $i; done", "X=lost & wait", "( Y=inner; p \"$Y\" )",
              "case $X in @) p c1 ;;& @) p c2 ;; *) p c3 ;; esac", "declare -n REF=X; REF=^; unset -n REF", "p w w"]
CONDITIONS = ["[[ $X == @ ]]", '[ "$Y" = ^ ]', '[[ -z $Z || $X != "a" ]]', "(( # > 1 ))", "[[ $X =~ ^^([a-z]+)=(.*)$ ]]",
              "false", "[[ -v A[1] ]]", "[ ! -n \"$X\" ]", "(exit 2)", "! true"]


def generated(seed):
    """A script of constructs of Bash; what p gets are the words of --data-path."""
    dice = random.Random(seed)

    def filled(line):
        def part(match):
            kind = match.group()
            if kind == "^^":
                return "^"
            if kind == "#":
                return f"{dice.choice(NUMBERS)} {dice.choice('+-*<&|')} {dice.choice(NUMBERS)}"
            chosen = dice.choice({"^": VALUES, "@": PATTERNS, "w": WORDS, "c": CONDITIONS}[kind])
            return chosen if kind in "^@" else filled(chosen)
        return re.sub(r"\^\^|\^(?=$|[ ;])|(?<![A-Za-z$\[{\"*])@(?=[ /)}\]]|$)|(?<![\w${'\"%\-])[wc](?=[ ;)]|$)|(?<=[( ])#(?=[ )])"
                      r"|(?<=\[)#(?=\])", part, line)

    lines = ["shopt -s extglob", "OUT=()", 'p() { OUT+=("$#" "$@"); }', 'f() { local X=l; p "$#" "$@" "$X"; return 3; }',
             "X=a Y='b c' Z= N=2 K=3 R=X", "A=(q r s) B=(one 'two three')", "declare -A M=([k]=v [l]='w w')"]
    lines += [filled(dice.choice(STATEMENTS)) for _ in range(12)]
    lines += ['unset IFS; p "$X" "$Y" "$Z" "${A[@]}" "${!A[@]}" "$N" "$@"',
              'torchrun pretrain_gpt.py --data-path "${OUT[@]/#/w:}"']
    return "\n".join(lines) + "\n"


class BashBesideIt(InOwnFolder):
    def setUp(self):
        super().setUp()
        for name in ("p", "q", "torchrun"):
            self.write(f"bin/{name}", f'#!/bin/sh\n{{ printf "[%s]" {name} "$@"; echo; }} >> "$RECORD"\n').chmod(0o755)

    def bash(self, script):
        record = self.folder / "record"
        record.unlink(missing_ok=True)
        subprocess.run(["bash", script, "/ckpt", "4"], cwd=self.folder, stdin=subprocess.DEVNULL, timeout=200,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                       env={"PATH": f"{self.folder / 'bin'}:/usr/bin:/bin", "HOME": "/users/u", "EV": "env val",
                            "RECORD": str(record), "LC_ALL": "C"})
        return record.read_text().rstrip("\n") if record.exists() else ""

    def test_the_recorded_constructs_are_what_bash_makes_of_them(self):
        for block in CONSTRUCTS.read_text().split("\n\n"):
            lines = [line for line in block.strip("\n").split("\n") if not line.startswith("# ")]
            script = "\n".join(line for line in lines if not line.startswith("=> "))
            if not script:
                continue
            told = "\n".join(line[3:] for line in lines if line.startswith("=> "))
            self.write("s.sh", script + "\n")
            self.assertEqual(self.bash("s.sh").replace("][", "] ["), told, script)

    def test_generated_scripts_are_read_as_bash_reads_them_or_refused_with_their_line(self):
        first, count, equal = 1, 40, 0
        for seed in range(first, first + count):
            script = generated(seed)
            self.write("s.sh", script)
            with self.subTest(seed=seed):
                equal += self.compare(script)
        self.assertGreater(equal, count // 2, "most scripts are read to their end")

    def compare(self, script):
        """Whether the words are equal; else the line must be named at which reading stops."""
        done = subprocess.run([program(), "convert", "s.sh", "--arg", "1=/ckpt", "--arg", "2=4", "--arg", "3=", "--env",
                               "HOME=/users/u", "-o", "r.yaml", "--report", "report.json"], cwd=self.folder, timeout=200,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertIn(done.returncode, (0, 2, 3), script + done.stdout)
        told = self.bash("s.sh")
        flags = json.loads((self.folder / "report.json").read_text())["flags"] if done.returncode != 2 else []
        words = [flag["values"] for flag in flags if flag["flag"] == "--data-path" and "only_where" not in flag]
        if words and f"[torchrun][pretrain_gpt.py][--data-path]{''.join(f'[{word}]' for word in words[0])}" == told:
            return True
        self.assertRegex(done.stdout, r"s\.sh:\d+", f"{script}bash: {told}\nread: {words}\n{done.stdout}")
        return False


if __name__ == "__main__":
    unittest.main()
