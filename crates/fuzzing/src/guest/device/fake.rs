//! The device: its registers, and its reactions to notifications and waits.

use std::sync::{Arc, Mutex, MutexGuard};

use transom_guest::transport::{QueueAddresses, ShmRegion, Transport, TransportError};

use super::{
    super::{memory::Reach, tape::Tape},
    rings::Ring,
};

/// What an honest reply consists of.
pub(super) const FILL: u8 = 0xd5;

const VERSION_1: u64 = 1 << 32;
const INDIRECT_DESC: u64 = 1 << 28;
const EVENT_IDX: u64 = 1 << 29;

const QUEUES: usize = 4;
const NO_QUEUES: [Option<Ring>; QUEUES] = [const { None }; QUEUES];

pub(super) struct Fake {
    tape: Arc<Tape>,
    reach: Reach,
    kind: u32,
    features: u64,
    config: [u8; 40],
    queue_len_max: u16,
    state: Mutex<State>,
}

struct State {
    status: u8,
    taken: u64,
    queues: [Option<Ring>; QUEUES],
    /// Registers that can be reached before one cannot.
    until_failure: u8,
    /// Resets that fail.
    stubborn: u8,
    is_gone: bool,
    /// Whether it has kept to the protocol so far.
    is_honest: bool,
}

impl Fake {
    /// A device whose registers are of the next bytes.
    pub(super) fn new(tape: Arc<Tape>, reach: Reach) -> Self {
        let oddity = tape.byte();
        let mut config = [0; 40];
        config[..5].copy_from_slice(b"share");
        config[36] = 2;
        if oddity & 1 != 0 {
            let at = usize::from(tape.byte()) % config.len();
            config[at] = tape.byte();
        }
        let features = tape.choose(&[INDIRECT_DESC | EVENT_IDX, INDIRECT_DESC, EVENT_IDX, 0]);
        let features = if oddity & 2 == 0 { features | VERSION_1 } else { u64::from(tape.u32()) << 8 };
        let state = State {
            status: 0,
            taken: 0,
            queues: NO_QUEUES,
            until_failure: if oddity & 4 == 0 { u8::MAX } else { tape.byte() },
            stubborn: if oddity & 8 == 0 { 0 } else { tape.byte() % 4 },
            is_gone: false,
            is_honest: true,
        };
        let kind = if oddity & 16 == 0 { 26 } else { tape.u32() };
        let queue_len_max = if oddity & 32 == 0 { 16 } else { tape.u16() };
        Self { tape, reach, kind, features, config, queue_len_max, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.try_lock().expect("a run has one thread")
    }

    pub(super) fn has_queues(&self) -> bool {
        self.state().queues.iter().any(Option::is_some)
    }

    pub(super) fn is_honest(&self) -> bool {
        self.state().is_honest
    }

    /// The state, where the device can be reached.
    fn reached(&self) -> Result<MutexGuard<'_, State>, TransportError> {
        let mut state = self.state();
        if state.is_gone {
            return Err(TransportError::Gone);
        }
        match state.until_failure {
            0 => {
                state.until_failure = u8::MAX;
                return Err(TransportError::Broken("a register"));
            }
            u8::MAX => {}
            _ => state.until_failure -= 1,
        }
        Ok(state)
    }

    /// Does what the next bytes say to the rings, that of `queue` mostly.
    fn act(&self, state: &mut State, queue: u16) {
        let deed = self.tape.byte();
        let queue = if deed & 0x20 == 0 { usize::from(queue) } else { usize::from(self.tape.byte()) };
        let State { queues, is_honest, is_gone, .. } = state;
        let Some(ring) = queues.get_mut(queue % QUEUES).and_then(Option::as_mut) else { return };
        ring.look(&self.reach, *is_honest);
        let is_answer = deed < 0x80;
        *is_honest &= is_answer || deed >= 0xf8;
        match deed {
            0..0x80 => {
                if let Some(chain) = ring.take(deed) {
                    let room = chain.room();
                    let written = if deed & 0x40 == 0 { room } else { room.min(u32::from(self.tape.u16())) };
                    chain.fill(&self.reach, written, FILL);
                    ring.push(&self.reach, chain.head.into(), written, 1);
                }
            }
            0x80..0xa0 => ring.push(&self.reach, self.tape.byte().into(), self.tape.u16().into(), 1),
            0xa0..0xb0 => ring.push(&self.reach, self.tape.u32(), self.tape.u32(), self.tape.u16()),
            0xb0..0xd0 => {
                let bytes = self.tape.bytes(usize::from(deed & 15) + 1);
                self.reach.write(usize::from(self.tape.u16()) * 8, &bytes);
            }
            0xd0..0xe0 => ring.scribble(&self.reach, self.tape.byte(), self.tape.u16()),
            0xe0..0xf0 => {
                if let Some(chain) = ring.take(deed) {
                    ring.push(&self.reach, chain.head.into(), 0, 1);
                    ring.push(&self.reach, chain.head.into(), 0, 1);
                }
            }
            0xf0..0xf8 => {
                if let Some(chain) = ring.take(deed) {
                    let written = chain.room().saturating_add(1 + u32::from(self.tape.byte()));
                    ring.push(&self.reach, chain.head.into(), written, 1);
                }
            }
            0xf8..0xff => {}
            0xff => {
                *is_gone = true;
                *queues = NO_QUEUES;
            }
        }
    }
}

/// The driver's way to it.
pub(super) struct FakeTransport(pub(super) Arc<Fake>);

impl Transport for FakeTransport {
    fn device_type(&self) -> u32 {
        self.0.kind
    }

    fn status(&self) -> Result<u8, TransportError> {
        Ok(self.0.reached()?.status)
    }

    fn add_status(&self, bits: u8) -> Result<(), TransportError> {
        self.0.reached()?.status |= bits;
        Ok(())
    }

    fn reset(&self) -> Result<(), TransportError> {
        let mut state = self.0.reached()?;
        if let Some(stubborn) = state.stubborn.checked_sub(1) {
            state.stubborn = stubborn;
            return Err(TransportError::Broken("it does not let go"));
        }
        state.status = 0;
        state.queues = NO_QUEUES;
        Ok(())
    }

    fn device_features(&self) -> Result<u64, TransportError> {
        self.0.reached().map(|_| self.0.features)
    }

    fn set_driver_features(&self, features: u64) -> Result<(), TransportError> {
        assert_eq!(features & !self.0.features, 0, "what was not offered is taken");
        self.0.reached()?.taken = features;
        Ok(())
    }

    fn read_config(&self, offset_bytes: usize, bytes: &mut [u8]) -> Result<(), TransportError> {
        let _state = self.0.reached()?;
        bytes.copy_from_slice(&self.0.config[offset_bytes..offset_bytes + bytes.len()]);
        Ok(())
    }

    fn queue_len_max(&self, queue: u16) -> Result<u16, TransportError> {
        let _state = self.0.reached()?;
        Ok(if usize::from(queue) < QUEUES { self.0.queue_len_max } else { 0 })
    }

    fn start_queue(&self, queue: u16, len: u16, addresses: QueueAddresses) -> Result<(), TransportError> {
        let mut state = self.0.reached()?;
        let has_event_index = state.taken & EVENT_IDX != 0;
        state.queues[usize::from(queue)] = Some(Ring::new(&self.0.reach, len, addresses, has_event_index));
        Ok(())
    }

    fn notify(&self, queue: u16) {
        if !self.0.tape.is_over() {
            self.0.act(&mut self.0.state(), queue);
        }
    }

    fn wait(&self, queue: u16, _: u64, _: Option<u64>) -> Result<(), TransportError> {
        let mut state = self.0.state();
        if self.0.tape.is_over() {
            state.is_gone = true;
            state.queues = NO_QUEUES;
        }
        if state.is_gone {
            return Err(TransportError::Gone);
        }
        self.0.act(&mut state, queue);
        Ok(())
    }

    fn shm_region(&self, _: u8) -> Result<Option<ShmRegion>, TransportError> {
        self.0.reached().map(|_| None)
    }
}
