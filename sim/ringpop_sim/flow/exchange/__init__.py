"""Dataflows under faults: does each record of each source count once, in one epoch?"""
