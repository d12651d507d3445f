"""Amounts of money: Decimal, in US dollars. How they are rounded, stored and written."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Decimal

UNIT_DIGITS = 12
"""Amounts are stored as whole numbers of 10⁻¹² USD: so they are exact, and a database can add them up. A price of a
millionth of a dollar for a million tokens still counts."""
_SMALLEST = Decimal(1).scaleb(-UNIT_DIGITS)


def round_amount(amount: Decimal) -> Decimal:
    """To the smallest amount that is stored, if it is finer. It is done once, before an amount is used: so the log, the
    metrics and the ledger say the same."""
    exponent = amount.as_tuple().exponent
    is_finer = isinstance(exponent, int) and exponent < -UNIT_DIGITS
    return amount.quantize(_SMALLEST, ROUND_HALF_EVEN) if is_finer else amount


def add_known(amounts: Sequence[Decimal | None]) -> Decimal | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known, Decimal(0)) if known else None


def to_units(amount: Decimal) -> int:
    return int(amount.scaleb(UNIT_DIGITS))


def from_units(units: int) -> Decimal:
    return Decimal(units).scaleb(-UNIT_DIGITS)


def write_amount(amount: Decimal) -> str:
    """All digits, without an exponent and without zeros at the end."""
    text = format(amount, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_dollars(amount: Decimal) -> str:
    """For people: cents, or two digits of what is less."""
    if amount and abs(amount) < Decimal("0.1"):
        return f"${write_amount(amount.quantize(Decimal(1).scaleb(amount.adjusted() - 1)))}"
    return f"${amount:,.2f}" if amount else "$0"


def cost_header(cost: Decimal | None, unpriced_calls: int) -> str:
    """The value of `x-toolwire-cost`: an amount, or `unknown`; `; incomplete` if the cost of a part is unknown."""
    if cost is None:
        return "unknown"
    return f"{write_amount(cost)}; incomplete" if unpriced_calls else write_amount(cost)
