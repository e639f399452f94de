//! Whatever a function says of itself, the driver returns, and its results are possible.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use parking_lot::{Mutex, RawMutex};
use proptest::prelude::*;
use transom_guest::transport::{
    Interrupts, QueueAddresses, Registers, Transport,
    pci::{Bar, BarRange, ConfigSpace, Pci, read_bars},
};

use crate::fake::{Fake, capability, capability_64};

/// A repeating sequence of words, wherever they are read.
#[derive(Clone)]
struct Words(Arc<(Vec<u32>, AtomicUsize)>, usize);

impl Words {
    fn new(words: Vec<u32>) -> Self {
        Self(Arc::new((words, AtomicUsize::new(0))), 0)
    }

    fn next(&self) -> u32 {
        let (words, next) = &*self.0;
        words[next.fetch_add(1, Ordering::Relaxed) % words.len()]
    }
}

impl Registers for Words {
    fn len_bytes(&self) -> usize {
        self.1
    }
    fn read_u8(&self, _offset_bytes: usize) -> u8 {
        self.next() as u8
    }
    fn read_u16(&self, _offset_bytes: usize) -> u16 {
        self.next() as u16
    }
    fn read_u32(&self, _offset_bytes: usize) -> u32 {
        self.next()
    }
    fn write_u8(&self, _offset_bytes: usize, _value: u8) {}
    fn write_u16(&self, offset_bytes: usize, _value: u16) {
        assert!(offset_bytes + 2 <= self.1, "a write outside");
    }
    fn write_u32(&self, _offset_bytes: usize, _value: u32) {}
}

/// A configuration that keeps what is written, or returns something else at each read.
enum Config {
    Memory(Box<Mutex<[u8; 256]>>),
    Changing(Words),
}

impl ConfigSpace for Config {
    fn read_u32(&self, offset_bytes: u8) -> u32 {
        let at = usize::from(offset_bytes);
        match self {
            Self::Memory(bytes) => u32::from_le_bytes(bytes.lock()[at..at + 4].try_into().unwrap()),
            // The identity is valid, so that the rest is read.
            Self::Changing(_) if at == 0 => 0x105a_1af4,
            Self::Changing(words) => words.next(),
        }
    }

    fn write_u32(&self, offset_bytes: u8, value: u32) {
        assert_eq!(offset_bytes % 4, 0);
        if let Self::Memory(bytes) = self {
            bytes.lock()[usize::from(offset_bytes)..][..4].copy_from_slice(&value.to_le_bytes());
        }
    }
}

fn any_word() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), Just(1), Just(u32::MAX), Just(0x1000_4009), any::<u32>()]
}

/// A capability that may be valid.
fn any_capability() -> impl Strategy<Value = Vec<u8>> {
    let offset = || prop_oneof![Just(0u64), 0..0x4000u64, any::<u64>()];
    prop_oneof![
        3 => (0..10u8, 0..8u8, offset(), any_word(), any::<u32>())
            .prop_map(|(kind, bar, at, len, more)| capability(kind, bar, at, len, &more.to_le_bytes())),
        4 => (1..5u8, any_word()).prop_map(|(kind, more)| capability(kind, 4, 0x40, 64, &more.to_le_bytes())),
        2 => (0..3u8, 0..8u8, offset(), offset()).prop_map(|(id, bar, at, len)| capability_64(id, bar, at, len)),
        1 => prop::collection::vec(any::<u8>(), 4..24),
    ]
}

/// Uses everything that a device has, if there is one, and returns the number of mapped registers.
fn use_all(config: &dyn ConfigSpace, bars: [Option<Bar>; 6], words: &Words) -> Result<(), TestCaseError> {
    let map = |range: BarRange| {
        let bar = bars[usize::from(range.bar)].expect("only what exists is mapped");
        assert!(range.address >= bar.address && range.len_bytes > 0);
        assert!(range.address + range.len_bytes <= bar.address + bar.len_bytes, "{range:?} outside of {bar:?}");
        Ok(Words(words.0.clone(), range.len_bytes as usize))
    };
    let Ok(device) = Pci::<_, RawMutex>::new(config, map, Interrupts::Polling) else { return Ok(()) };
    let addresses = QueueAddresses { descriptors: 0, available: 0, used: 0 };
    let _ = device.add_status(1);
    let _ = (device.device_features(), device.set_driver_features(1));
    for queue in [0, 1, 1023, u16::MAX] {
        let len = device.queue_len_max(queue).unwrap_or(64);
        prop_assert!(len == 0 || len.is_power_of_two());
        let _ = device.start_queue(queue, len, addresses);
        device.notify(queue);
        let _ = device.wait(queue, device.notifications(queue), None);
    }
    for (offset, len) in [(0, 36), (36, 4), (1, 2), (usize::MAX, 1)] {
        let _ = device.read_config(offset, &mut vec![0; len]);
    }
    for id in 0..=3 {
        if let Ok(Some(region)) = device.shm_region(id) {
            let is_within = |bar: &Bar| {
                region.address >= bar.address && region.address + region.len_bytes <= bar.address + bar.len_bytes
            };
            prop_assert!(region.len_bytes > 0 && bars.iter().flatten().any(is_within), "{region:?}");
        }
    }
    let _ = device.reset();
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn lists_of_any_capabilities_lead_only_to_what_lies_within_a_bar(
        capabilities in prop::collection::vec(any_capability(), 0..7),
        links in prop::collection::vec((0x40..0xffusize, any::<u8>()), 0..2),
        words in prop::collection::vec(any_word(), 1..12),
    ) {
        let fake = Fake::default();
        let bars = read_bars(&fake).unwrap();
        {
            let mut state = fake.0.lock();
            state.list(&capabilities);
            links.iter().for_each(|&(at, value)| state.put(at, &[value]));
        }
        use_all(&fake, bars, &Words::new(words))?;
    }

    #[test]
    fn a_configuration_of_any_bytes_that_keeps_what_is_written_is_survived(
        bytes in prop::collection::vec(any::<u8>(), 256),
    ) {
        let mut bytes: [u8; 256] = bytes.try_into().unwrap();
        bytes[..4].copy_from_slice(&0x105a_1af4u32.to_le_bytes());
        bytes[6] |= 0x10;
        let config = Config::Memory(Box::new(Mutex::new(bytes)));
        if let Ok(bars) = read_bars(&config) {
            use_all(&config, bars, &Words::new(vec![1, 0, 7]))?;
        }
    }

    #[test]
    fn a_configuration_that_changes_at_every_look_is_survived(words in prop::collection::vec(any_word(), 1..60)) {
        let config = Config::Changing(Words::new(words));
        let _ = read_bars(&config);
        let map = |_: BarRange| Ok(Words(Words::new(vec![0, 1, 2]).0, 64));
        if let Ok(device) = Pci::<_, RawMutex>::new(&config, map, Interrupts::Polling) {
            let _ = (device.queue_len_max(0), device.shm_region(0), device.reset());
        }
    }
}
