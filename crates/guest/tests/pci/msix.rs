//! A function's table of messages, by a model of its configuration space and of the table.

use std::sync::Arc;

use parking_lot::Mutex;
use transom_guest::transport::{
    Registers, TransportError,
    pci::{BarRange, ConfigSpace, Message, Msix},
};

const BAR: u32 = 0xfe00_0000;
const BAR_LEN: u32 = 0x1000;
const CAPABILITY: usize = 0x50;

/// A configuration space with one BAR of 4 KiB, number 1, and a capability of MSI-X.
struct Config(Mutex<[u8; 256]>);

impl Config {
    fn new(len: u16, table: u32) -> Self {
        let mut bytes = [0; 256];
        bytes[0x06] = 0x10;
        bytes[0x14..0x18].copy_from_slice(&BAR.to_le_bytes());
        bytes[0x34] = CAPABILITY as u8;
        bytes[CAPABILITY] = 0x11;
        bytes[CAPABILITY + 2..CAPABILITY + 4].copy_from_slice(&(len - 1).to_le_bytes());
        bytes[CAPABILITY + 4..CAPABILITY + 8].copy_from_slice(&table.to_le_bytes());
        Self(Mutex::new(bytes))
    }

    fn control(&self) -> u16 {
        u16::from_le_bytes(self.0.lock()[CAPABILITY + 2..CAPABILITY + 4].try_into().unwrap())
    }
}

impl ConfigSpace for Config {
    fn read_u32(&self, offset_bytes: u8) -> u32 {
        let at = usize::from(offset_bytes);
        u32::from_le_bytes(self.0.lock()[at..at + 4].try_into().unwrap())
    }

    fn write_u32(&self, offset_bytes: u8, value: u32) {
        let value = match offset_bytes {
            0x14 => value & !(BAR_LEN - 1),
            0x10..0x28 => 0,
            _ => value,
        };
        let at = usize::from(offset_bytes);
        self.0.lock()[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
}

/// The table, as its words.
#[derive(Clone)]
struct Table(Arc<Mutex<Vec<u32>>>);

impl Registers for Table {
    fn len_bytes(&self) -> usize {
        self.0.lock().len() * 4
    }
    fn read_u8(&self, _: usize) -> u8 {
        panic!("an access of one byte")
    }
    fn read_u16(&self, _: usize) -> u16 {
        panic!("an access of two bytes")
    }
    fn read_u32(&self, offset_bytes: usize) -> u32 {
        self.0.lock()[offset_bytes / 4]
    }
    fn write_u8(&self, _: usize, _: u8) {
        panic!("an access of one byte")
    }
    fn write_u16(&self, _: usize, _: u16) {
        panic!("an access of two bytes")
    }
    fn write_u32(&self, offset_bytes: usize, value: u32) {
        self.0.lock()[offset_bytes / 4] = value;
    }
}

/// Opens the table, of which a model with 4 entries is mapped.
fn open(config: &Config) -> Result<Option<(Msix<Table>, Table, BarRange)>, TransportError> {
    let table = Table(Arc::new(Mutex::new(vec![1; 16])));
    let mut seen = None;
    let found = Msix::new(config, |range| {
        seen = Some(range);
        Ok(table.clone())
    })?;
    Ok(found.map(|found| (found, table.clone(), seen.unwrap())))
}

#[test]
fn messages_are_set_where_the_function_says_and_switched_on_and_off() {
    let config = Config::new(4, 0x800 | 1);
    let (messages, table, range) = open(&config).unwrap().unwrap();
    assert_eq!(range, BarRange { bar: 1, address: u64::from(BAR) + 0x800, len_bytes: 64 });
    assert_eq!((messages.len(), config.read_u32(4) & 2), (4, 2));
    messages.set(2, Message { address: 0x1_fee0_0000, data: 33 });
    messages.set(4, Message { address: 0, data: 0 });
    assert_eq!(table.0.lock()[..], [1, 1, 1, 1, 1, 1, 1, 1, 0xfee0_0000, 1, 33, 0, 1, 1, 1, 1]);
    messages.enable(&config);
    assert_eq!(config.control(), 0x8003);
    messages.disable(&config);
    assert_eq!(config.control(), 3);
    assert_eq!(config.read_u32(0x14), BAR);
}

#[test]
fn a_table_that_lies_outside_of_its_bar_is_refused_and_a_function_without_one_has_none() {
    for (len, table) in [(4, 0xfd0 | 1), (2048, 1), (1, 0), (1, 0xffff_fff8 | 1), (1, 7)] {
        let refused = open(&Config::new(len, table)).err();
        assert!(matches!(refused, Some(TransportError::Broken(_))), "{len} entries at {table:#x}: {refused:?}");
    }
    let without = Config::new(1, 1);
    without.0.lock()[CAPABILITY] = 5;
    assert!(open(&without).unwrap().is_none());
    // At the very end there is no room for all of it.
    let late = Config::new(1, 1);
    {
        let mut bytes = late.0.lock();
        bytes[0x34] = 0xfc;
        bytes[0xfc] = 0x11;
    }
    assert!(matches!(open(&late), Err(TransportError::Broken(_))));
}
