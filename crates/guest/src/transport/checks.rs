//! Checks of the device, and timeouts, that transports share: those of this crate, and those of others.

use super::TransportError;

/// Number of status reads before a reset counts as failed. Each read takes at least a tenth of a microsecond on a bus
/// and several microseconds in a virtual machine, so this is between a tenth of a second and a few seconds.
const RESET_READS_MAX: u32 = 1 << 20;

/// Configurations change rarely; one that changes under this many reads in a row will never settle.
const GENERATIONS_MAX: u32 = 64;

/// The maximum number of descriptors of a split virtqueue (§2.7).
const QUEUE_LEN_MAX: u16 = 1 << 15;

/// Waits until the device has finished a reset (§2.1.2).
///
/// Errors: the reset takes too long, or reading the status fails.
pub fn wait_for_reset(mut status: impl FnMut() -> Result<u8, TransportError>) -> Result<(), TransportError> {
    for _ in 0..RESET_READS_MAX {
        if status()? == 0 {
            return Ok(());
        }
        core::hint::spin_loop();
    }
    Err(TransportError::Broken("its reset does not end"))
}

/// Repeats `read` until the whole configuration read is of one generation (§2.5.1).
///
/// Errors: the generation changes during each of many reads.
pub fn read_settled<G: PartialEq>(
    mut generation: impl FnMut() -> G,
    mut read: impl FnMut(),
) -> Result<(), TransportError> {
    for _ in 0..GENERATIONS_MAX {
        let before = generation();
        read();
        if generation() == before {
            return Ok(());
        }
    }
    Err(TransportError::Broken("its configuration never settles"))
}

/// Returns where a part of the configuration space begins, if it lies within the space.
pub(super) fn config_start(
    base_bytes: usize,
    offset_bytes: usize,
    len_bytes: usize,
    there_are_bytes: usize,
) -> Result<usize, TransportError> {
    let start = base_bytes.checked_add(offset_bytes);
    let end = start.and_then(|start| start.checked_add(len_bytes));
    match (start, end) {
        (Some(start), Some(end)) if end <= there_are_bytes => Ok(start),
        _ => Err(TransportError::Lacks("as much configuration space as the driver reads")),
    }
}

/// Returns a queue's length as the device states it, rounded down to a power of two, as a split ring requires.
///
/// Errors: it exceeds what a split ring may have.
pub fn queue_len_from_device(len_max: u32) -> Result<u16, TransportError> {
    match u16::try_from(len_max) {
        Ok(0) => Ok(0),
        Ok(len_max) if len_max <= QUEUE_LEN_MAX => Ok(1 << len_max.ilog2()),
        _ => Err(TransportError::Broken("a queue of more than 32768 descriptors")),
    }
}

/// Checks the length that a driver requests for a queue with at most `len_max` descriptors.
///
/// Errors: it is longer, or not a power of two.
pub fn check_queue_len(len: u16, len_max: u16) -> Result<(), TransportError> {
    if len > len_max {
        return Err(TransportError::Lacks("a queue as long as the driver wants"));
    }
    if !len.is_power_of_two() {
        return Err(TransportError::Lacks("queues whose length is not a power of two"));
    }
    Ok(())
}
