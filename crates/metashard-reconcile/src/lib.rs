//! What must change: merge, diff, claim, apply, finalize. Objects in, a plan out.
