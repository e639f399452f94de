//! Memory that may vanish: mappings of files that somebody else may cut off.
//!
//! [`copy`] moves bytes in and out of such memory and gives an error where an ordinary copy would end the process.
//! [`signals`] are the handlers that make it so, and that let faults in mapped files be served.

pub mod copy;
mod instructions;
mod signals;

pub use signals::{Fault, Served, serve_with};
