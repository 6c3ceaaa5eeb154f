"""What all rooms stand on: errors, addresses, settings, values and messages, the log.

It promises that bad input is refused with a clear error, in one place for each kind: settings,
options and queries (`rules`), arguments of callers (`arguments`), messages
(`values/declared.py`), Arrow and compressed data (`values/arrow.py`, `values/inflate.py`).
Everything that may be caught is in `errors`.

Begin with `errors.py`, then `values/declared.py`: how a message is declared.

It imports no other room. Most of it is pure: `supervision`, `logs` and `config/places` are not.
"""
