//! What a guest that was resumed must not share with others from the same snapshot: the time and the random numbers.
#![expect(unsafe_code, reason = "an ioctl that rustix does not wrap")]

use std::{fs::File, io, io::Write as _};

use rustix::{
    ioctl::{NoArg, ioctl, opcode},
    time::{ClockId, Timespec, clock_settime},
};

use super::while_doing;
use crate::protocol::Beginning;

/// `RNDRESEEDCRNG` of `linux/random.h`: the generator is seeded anew from the pool.
const RESEED: rustix::ioctl::Opcode = opcode::none(b'R', 0x07);

/// Sets the clock, and seeds the random number generator with what only this guest gets.
pub(super) fn adopt(beginning: &Beginning) -> io::Result<()> {
    let now = Timespec { tv_sec: beginning.now.as_secs() as i64, tv_nsec: beginning.now.subsec_nanos().into() };
    clock_settime(ClockId::Realtime, now).map_err(while_doing("cannot set the clock"))?;
    reseed(&beginning.seed).map_err(while_doing("cannot seed the random number generator"))
}

fn reseed(seed: &[u8]) -> io::Result<()> {
    let mut pool = File::options().write(true).open("/dev/urandom")?;
    // Mixed into the pool, from which nothing is drawn until the generator is seeded anew.
    pool.write_all(seed)?;
    // SAFETY: RNDRESEEDCRNG takes no argument, and changes nothing in this process (drivers/char/random.c,
    // random_ioctl).
    unsafe { ioctl(&pool, NoArg::<RESEED>::new()) }?;
    Ok(())
}
