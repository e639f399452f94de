//! Access to memory that may disappear: mappings of files that others may truncate.
//!
//! [`copy`] copies to and from such memory, and returns where an ordinary copy would end the process. [`signals`] has
//! the handlers that make this possible, and that let others serve faults in mapped files.

pub mod copy;
mod instructions;
mod signals;

pub use signals::{Fault, Served, serve_with};
