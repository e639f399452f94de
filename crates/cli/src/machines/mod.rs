//! Machines that stay after `transom run --keep`: `transom exec`, `ps`, `stop` and `cp`.

mod cp;
mod exec;
mod ps;
mod stop;

pub(crate) use cp::Cp;
pub(crate) use exec::{Exec, run_in};
pub(crate) use ps::Ps;
pub(crate) use stop::Stop;
