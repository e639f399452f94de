//! What a front end that migrates its guest relies on.

mod daemon;
mod dirty;
mod locks;
mod state;
mod watched;
