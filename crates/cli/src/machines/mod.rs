//! Machines that stay after `transom run --keep`: `transom exec`, `ps`, `share`, `stop` and `cp`.

mod cp;
mod exec;
mod ps;
mod share;
mod stop;

pub(crate) use cp::Cp;
pub(crate) use exec::{Exec, run_in};
pub(crate) use ps::Ps;
pub(crate) use share::Share;
pub(crate) use stop::Stop;
