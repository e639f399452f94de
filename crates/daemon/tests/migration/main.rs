//! What a front end that migrates its guest relies on.

mod daemon;
mod dirty;
mod given_up;
mod locks;
mod state;
mod watched;
