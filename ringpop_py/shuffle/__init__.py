"""The shuffle's protocol (pure): rows that many clients put, in order of key, read again and again.

One record a shuffle says everything: who its members are, which segment is held by whom, where the
cuts are, which member answers for which interval. It lies where it can be compared and set. Members
act on the record only (`member.py`), and any of them may change it, from what all members report
(`home.py`), by the rules of `changes.py`. So nobody leads: of two that change it at the same time,
one loses the comparison, and reads it again.
"""
