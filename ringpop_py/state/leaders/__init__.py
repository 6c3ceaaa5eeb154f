"""Leaders: a name has one holder a term, by compare-and-set on a record that is never deleted."""
