//! Process 1 of the guest.

/// Becomes the agent, never to return, if this process is the first one of a guest.
pub fn run_if_init() {}
