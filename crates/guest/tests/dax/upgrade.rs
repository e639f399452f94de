//! Stores to ranges that were mapped for loads.

use transom_guest::{
    dax::{Access, RANGE_LEN},
    fs::OpenOptions,
};

use crate::fake::share;

#[test]
fn a_range_that_was_mapped_for_loads_becomes_writable_at_its_place() {
    let (_dir, window, fs) = share(4);
    let file = fs.open("file", &OpenOptions::new().read(true).write(true)).unwrap();
    file.set_len(RANGE_LEN).unwrap();
    let place = {
        let pin = file.inode().pin(0, Access::Read).unwrap().expect("there is room");
        assert!(!pin.is_writable());
        // A pin for reading prevents the upgrade.
        assert!(file.inode().pin(0, Access::Write).unwrap().is_none());
        pin.window_offset()
    };
    let pin = file.inode().pin(0, Access::Write).unwrap().expect("nobody reads through it any more");
    assert!(pin.is_writable());
    assert_eq!(pin.window_offset(), place);
    pin.store(5, b"hello").unwrap();
    let mapping = window.mappings.lock().unwrap()[&(place / RANGE_LEN)];
    assert!(mapping.is_writable);
    let counts = fs.volume().window().unwrap().counts();
    assert_eq!((counts.mapped, counts.upgraded, counts.refused), (1, 1, 0));
}
