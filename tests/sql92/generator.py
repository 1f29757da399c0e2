"""Random expressions and property sets: mostly valid, some nearly valid, some invalid. Reproducible by a seed."""

import random

NAMES = ("a", "b", "c", "_x", "$y", "TAGS", "missing")
VALUES = (
    "0", "1", "5", "-5", "+5", "05", "5.0", "5.5", "-0", "-0.0", "0.0", "2147483647", "2147483648", "-2147483648",
    "-2147483649", "9223372036854775807", "9223372036854775808", "00000000000000000000000000005", "1e3", "1E400",
    "1e-400", "NaN", "-NaN", "Infinity", "-Infinity", "inf", "nan", " 7 ", "7 ", "7f", "7D", "7L", "0x10", "0x1p4",
    "0x1.8p1f", ".5", "5.", ".", "+", "-", "1_000", "٣", "５", "true", "TRUE", "True", "false", "hangzhou", "han",
    "x'y", "it''s", "é", "😀", "a b", "null", "\t5", "5\x00", "1e", "--5", "abc",
)  # fmt: skip
LITERALS = (
    "0", "1", "5", "05", "5L", "5l", "0L", "5.0", "5.", ".5", "1e3", "5E10", "1.e5", "0.0", "1e400", "1e-400",
    "4.9e-324",
    "2147483647", "2147483648", "9223372036854775807", "9223372036854775808", "99999999999999999999", "TRUE", "false",
    "NULL", "'5'", "'abc'", "''", "'x''y'", "'hangzhou'", "'true'", "'é'", "'\n'", "1e7", "123456.789",
    "1.0e-5", "0.001",
)  # fmt: skip
TEXTS = ("'a'", "''", "'han'", "'zhou'", "'5'", "'x''y'", "'true'", "'e'", "'hangzhou'")
NOISE = (
    "!", "!=", "==", "'", "''", "(", ")", ",", "#", ".", "/", "/*", "*/", "/* c */", "-- c\n", "--", "-- c\r\n",
    "+", "-", "NOT", "AND", "OR", "IS", "IN", "BETWEEN", "NULL", "LIKE", "\t", "\n", "\r", "\r\n", "\f", "é", "a.b",
    "5a", "&", "\"",
    "<", "<=", "=<", "=>", "CONTAINS", "x", "5", "\x00", "/**/", "/***/", "/*/", "'''", "..", "1..2", "007.5",
)  # fmt: skip


class Generator:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.pick = self.random.choice

    def properties(self) -> dict[str, str]:
        """Some names have no value."""
        return {name: self.pick(VALUES) for name in NAMES[:-1] if self.random.random() < 0.8}

    def expression(self) -> str:
        text = self.condition(self.random.randrange(4))
        for _ in range(self.pick((0, 0, 0, 0, 0, 0, 1, 2))):
            text = self.spoiled(text)
        return text

    def spoiled(self, text: str) -> str:
        at = self.random.randrange(len(text) + 1)
        what = self.random.random()
        if what < 0.5:
            return text[:at] + self.pick((" ", "")) + self.pick(NOISE) + self.pick((" ", "")) + text[at:]
        if what < 0.75:
            return text[:at] + text[at + 1 + self.random.randrange(4) :]
        return text[:at] if what < 0.9 else self.pick(NOISE) + text

    def condition(self, depth: int) -> str:
        if depth <= 0 or self.random.random() < 0.3:
            return self.comparison(depth)
        left, right = self.condition(depth - 1), self.condition(depth - 1)
        return self.pick(
            (
                f"{left} AND {right}",
                f"{left} OR {right}",
                f"{left} {self.cased('and')} {right} OR {self.condition(depth - 1)}",
                f"NOT ({left})",
                f"({left})",
                f"NOT {left}",
                f"({left}) = ({right})",
                f"({left}) <> {self.operand(0)}",
                f"({left}) IS NULL",
                f"(({left})){self.pick(('', ' ', '/* c */'))}OR({right})",
            )
        )

    def comparison(self, depth: int) -> str:
        left, right = self.operand(depth), self.operand(depth)
        sign = self.pick(("=", "=", "=", "<>", "<", ">", "<=", ">="))
        space = self.pick((" ", " ", "", "\n", "\t", "/* * */"))
        texts = ", ".join(self.pick(TEXTS) for _ in range(self.random.randrange(1, 7)))
        negated = self.pick(("", "NOT ", "not "))
        return self.pick(
            (
                f"{left}{space}{sign}{space}{right}",
                f"{left}{space}{sign}{space}{right}",
                f"{self.pick(NAMES)} {sign} {self.pick(LITERALS)}",
                f"{self.pick(LITERALS)} {sign} {self.pick(NAMES)}",
                f"{left} {negated}BETWEEN {self.operand(0)} AND {self.operand(0)}",
                f"{self.pick(NAMES)} {negated}{self.cased('in')}{space}({texts})",
                f"{left} {negated}{self.pick(('CONTAINS', 'STARTSWITH', 'EndsWith'))} {self.pick(TEXTS)}",
                f"{left} IS {negated}NULL",
                f"{left} = {right} = {self.operand(0)}",
                f"{self.pick(NAMES)}",
                f"{left} {sign} {right} {sign} {self.operand(0)}",
            )
        )

    def operand(self, depth: int) -> str:
        chance = self.random.random()
        if chance < 0.5:
            return self.pick(NAMES)
        if chance < 0.85:
            return self.pick(LITERALS)
        if chance < 0.95:
            return self.pick(("-", "+", "- -", "-+", "NOT ")) + self.operand(depth - 1)
        return f"({self.condition(depth - 1) if depth > 0 else self.operand(0)})"

    def cased(self, word: str) -> str:
        return "".join(self.pick((letter.lower(), letter.upper())) for letter in word)
