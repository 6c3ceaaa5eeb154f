"""Streams under faults: does each record of each source count once?"""
