"""The shuffle's protocol (pure): rows that many clients put, in order of key, read again and again.

One record for each shuffle says everything: its members, which of them hold which segment, where
the cuts are, and which member answers for which interval. It lies where it can be compared and set.
Members act only on the record (`member.py`). Any member may change it, from the reports of all
(`home.py`), by the rules of `changes.py`. So there is no leader: of two members that change it at
the same time, one loses the comparison, and reads the record again.
"""
