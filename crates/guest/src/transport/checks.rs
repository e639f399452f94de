//! What both transports in memory check of their device, and how long they wait for it.

use super::TransportError;

/// The device is read so often before a reset counts as failed: each read takes at least a tenth of a microsecond on a
/// bus and several in a virtual machine, so that this is between a tenth of a second and some seconds.
const RESET_READS_MAX: u32 = 1 << 20;

/// Configurations change rarely; one that has changed under this many reads in a row changes for ever.
const GENERATIONS_MAX: u32 = 64;

/// A split virtqueue has at most so many descriptors (§2.7).
const QUEUE_LEN_MAX: u16 = 1 << 15;

/// Waits until the device has finished a reset (§2.1.2).
///
/// Errors: it does not within the bound; whatever reading its status fails with.
pub(super) fn wait_for_reset(mut status: impl FnMut() -> Result<u8, TransportError>) -> Result<(), TransportError> {
    for _ in 0..RESET_READS_MAX {
        if status()? == 0 {
            return Ok(());
        }
        core::hint::spin_loop();
    }
    Err(TransportError::Broken("its reset does not end"))
}

/// Repeats `read` until the configuration has been of one generation throughout (§2.5.1).
pub(super) fn read_settled<G: PartialEq>(
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

/// Where a part of the configuration space begins, if it lies within what there is.
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

/// A queue's length as the device gives it, cut to a power of two, as a split ring must be.
pub(super) fn queue_len_from_device(len_max: u32) -> Result<u16, TransportError> {
    match u16::try_from(len_max) {
        Ok(0) => Ok(0),
        Ok(len_max) if len_max <= QUEUE_LEN_MAX => Ok(1 << len_max.ilog2()),
        _ => Err(TransportError::Broken("a queue of more than 32768 descriptors")),
    }
}

/// What a driver may ask of a queue with at most `len_max` descriptors.
pub(super) fn check_queue_len(len: u16, len_max: u16) -> Result<(), TransportError> {
    if len > len_max {
        return Err(TransportError::Lacks("a queue as long as the driver wants"));
    }
    if !len.is_power_of_two() {
        return Err(TransportError::Lacks("queues whose length is not a power of two"));
    }
    Ok(())
}
