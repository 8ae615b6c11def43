"""Reports on their way to the coordinator's service, signed."""

import json
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from trip_jax.node.report import Report
from trip_jax.node.signing import Signer
from trip_jax.settings.errors import InvalidSetting

SIGNATURE = "Trip-Signature"
"""The header that holds it."""


def send(report: Report, address: str, signer: Signer, timeout: float = 30) -> None:
    """Hand a report in; once this returns, the coordinator has stored it.

    A report that the coordinator has already is no fault, so that what was cut off can be sent
    again.

    Args:
        address: of the service, such as "https://coordinator.example:8000".
        timeout: in seconds.

    Raises:
        InvalidSetting: it was refused; the message is the coordinator's.
        OSError: the coordinator can't be reached, or its answer was cut off: send it again.
    """
    post(f"{address.rstrip('/')}/reports", report.to_json().encode(), signer, timeout)


def post(address: str, message: bytes, signer: Signer, timeout: float) -> None:
    """A signed message; as `send`."""
    headers = {"Content-Type": "application/json", SIGNATURE: signer.sign(message)}
    try:
        with urlopen(Request(address, message, headers), timeout=timeout) as answer:
            answer.read()
    except HTTPError as error:
        with error:
            told = _refusal(error)
        if told.get("refused") != "replayed":
            raise InvalidSetting(str(told.get("why"))) from None
    except HTTPException as error:  # the service ended within its answer
        raise ConnectionError(f"The coordinator's answer was cut off ({error!r}).") from error


def _refusal(error: HTTPError) -> dict[str, str]:
    try:
        return dict(json.loads(error.read()))
    except (ValueError, HTTPException) as cut_off:
        raise ConnectionError(f"The coordinator answers {error.code}.") from cut_off
