//! What a pin lets its holder access.

use transom_guest::{
    Errno,
    dax::{Access, RANGE_LEN},
    fs::OpenOptions,
};

use crate::fake::share;

const LEN: usize = RANGE_LEN as usize;

#[test]
fn a_pin_reaches_its_range_and_nothing_else() {
    let (dir, _window, fs) = share(4);
    let bytes: Vec<u8> = (0..3 * LEN).map(|at| (at / 4096 + at % 251) as u8).collect();
    std::fs::write(dir.path().join("file"), &bytes).unwrap();
    let file = fs.open("file", &OpenOptions::new().read(true).write(true)).unwrap();
    let pins = [0, 1, 2].map(|index| file.inode().pin(index, Access::Write).unwrap().expect("there is room"));
    for (pin, of_file) in pins.iter().zip(bytes.chunks(LEN)) {
        let mut found = vec![0; LEN];
        pin.load(0, &mut found).unwrap();
        assert!(found == of_file);
        for at in [0, 1, 4095, LEN - 10] {
            let mut found = [0; 10];
            pin.load(at, &mut found).unwrap();
            assert_eq!(found, of_file[at..at + 10], "{at}");
        }
        for at in [LEN - 9, LEN, usize::MAX, usize::MAX - 9] {
            assert_eq!(pin.load(at, &mut [0; 10]), Err(Errno::INVAL));
            assert_eq!(pin.store(at, &[0; 10]), Err(Errno::INVAL));
        }
        assert_eq!((pin.touch(LEN - 1), pin.touch(LEN)), (Ok(()), Err(Errno::INVAL)));
    }
    pins[1].store(4000, &[0xff; 200]).unwrap();
    pins[2].store(LEN - 3, &[0xfe; 3]).unwrap();
    let mut expected = bytes;
    expected[LEN + 4000..LEN + 4200].fill(0xff);
    expected[3 * LEN - 3..].fill(0xfe);
    assert!(std::fs::read(dir.path().join("file")).unwrap() == expected);
}

#[test]
fn what_is_mapped_for_reading_is_not_stored_to() {
    let (dir, _window, fs) = share(4);
    std::fs::write(dir.path().join("file"), [7; 4096]).unwrap();
    let file = fs.open_read("file").unwrap();
    let pin = file.inode().pin(0, Access::Read).unwrap().expect("there is room");
    assert_eq!((pin.store(0, &[1]), pin.touch(0)), (Err(Errno::ACCESS), Err(Errno::ACCESS)));
    let mut found = [0; 2];
    pin.load(4094, &mut found).unwrap();
    assert_eq!(found, [7; 2]);
}
