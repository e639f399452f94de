//! An announcement of any bytes, as the agent in a guest reads it.

use transom_wire::agent::{Announcement, Change, Changes, EXCHANGE_LEN, Malformed, Writer};

/// Reads one announcement, which zeros continue. Panics where what was read is not what would be written.
pub fn run(bytes: &[u8]) {
    let mut argument = [0; EXCHANGE_LEN];
    let len = bytes.len().min(EXCHANGE_LEN);
    argument[..len].copy_from_slice(&bytes[..len]);
    let Ok((head, changes)) = Changes::parse(&argument) else { return };
    let read: Vec<Result<Change<'_>, Malformed>> = changes.collect();
    assert!(read.len() <= head.count.get() as usize);
    assert!(read.iter().rev().skip(1).all(Result::is_ok), "an error ends an announcement");
    let good: Vec<Change<'_>> = read.iter().copied().filter_map(Result::ok).collect();
    assert!(good.len() == head.count.get() as usize || read.last() == Some(&Err(Malformed)));

    let mut again = [0; EXCHANGE_LEN];
    let mut writer = Writer::new(&mut again);
    assert!(good.iter().all(|change| writer.push(change)), "what was read fits");
    let used = writer.used();
    assert!((size_of::<Announcement>()..=EXCHANGE_LEN).contains(&used));
    let count = writer.finish(head.is_overflow.get() != 0);
    let (_, changes) = Changes::parse(&again).expect("it was written here");
    assert!(changes.map(Result::ok).eq(good.iter().copied().map(Some)) && count as usize == good.len());
}
