//! Work by paths and with open files, as a program does it, while names, attributes and data are cached.

use std::collections::VecDeque;

use transom_guest::{
    Errno,
    cache::{CacheMode, CacheOptions},
    fs::{Credentials, File, Fs, OpenOptions, ReadDir, SeekFrom},
    session::Session,
    volume::{Lock, LockKind, SetTime},
};

use super::{
    super::{platform::Lone, tape::Tape},
    operations::is_possible,
    server::Answers,
};

const PATHS: [&str; 12] =
    ["a", "b", "a/b", "link", "/a/link/b", "../a", ".", "a/", "a/../b", "/", "a/b/c/d/e/f/g/h/i", "x"];
/// Open files and listings at the same time.
const OPEN_MAX: usize = 4;
/// Entries that are taken of one listing: it is the server who ends it.
const ENTRIES_MAX: usize = 32;

struct User<'a> {
    fs: Fs<Lone>,
    tape: &'a Tape,
    files: VecDeque<File<Lone>>,
    listings: VecDeque<ReadDir<Lone>>,
}

/// Uses the share until the input is over, and lets go of everything.
pub(super) fn until_over(session: Session<Lone>, tape: &Tape, server: &Answers) {
    let mode = tape.choose(&[CacheMode::Auto, CacheMode::Always, CacheMode::None]);
    let options = CacheOptions {
        mode,
        names_max: tape.choose(&[64, 3, 0]),
        data_max_bytes: tape.choose(&[1 << 16, 0]),
        ..CacheOptions::default()
    };
    let fs = Fs::mount(session, options);
    let mut user = User { fs, tape, files: VecDeque::new(), listings: VecDeque::new() };
    while !tape.is_over() {
        let choice = tape.byte();
        let outcome = match choice >> 6 {
            0 => user.look(choice),
            1 => user.change(choice),
            2 => user.open(choice),
            _ => user.use_file(choice),
        };
        assert!(outcome.is_ok() || outcome.is_err_and(|error| (1..=4095).contains(&error.raw())));
    }
    user.files.clear();
    user.listings.clear();
    server.end();
    drop(user);
}

impl User<'_> {
    fn path(&self) -> &'static str {
        self.tape.choose(&PATHS)
    }

    fn look(&mut self, choice: u8) -> Result<(), Errno> {
        let (fs, path) = (&self.fs, self.path());
        match choice & 15 {
            0 | 1 => assert!(is_possible(fs.metadata(path)?.attr())),
            2 => assert!(is_possible(fs.symlink_metadata(path)?.attr())),
            3 => _ = fs.exists(path)?,
            4 => fs.access(path, 5)?,
            5 => _ = fs.read_link(path)?,
            6 => assert_eq!(fs.canonicalize(path)?[0], b'/'),
            7 => _ = fs.statfs(path)?,
            8 => _ = fs.get_xattr(path, "user.a", true)?,
            9 => _ = fs.list_xattr(path, true)?,
            10 => self.fs.set_current_dir(path)?,
            11 => fs.volume().drop_names(),
            12 => {
                self.fs = fs.with_credentials(Credentials { uid: 9, gid: 9, groups: vec![0], ..Credentials::default() })
            }
            13 => self.fs = fs.with_credentials(Credentials::default()),
            14 => self.fs = fs.with_queue(self.tape.byte().into()),
            _ => fs.sync()?,
        }
        Ok(())
    }

    fn change(&mut self, choice: u8) -> Result<(), Errno> {
        let (fs, path) = (&self.fs, self.path());
        match choice & 15 {
            0 => fs.create_dir(path, 0o755),
            1 => fs.create_dir_all(path, 0o755),
            2 => fs.mknod(path, 0o010_600, 0),
            3 => fs.symlink("target", path),
            4 => fs.hard_link(path, self.path()),
            5 => fs.remove_file(path),
            6 => fs.remove_dir(path),
            7 => fs.remove_dir_all(path),
            8 => fs.rename(path, self.path()),
            9 => fs.rename_with(path, self.path(), 2),
            10 => fs.set_permissions(path, 0o644),
            11 => fs.set_owner(path, Some(9), Some(9), false),
            12 => fs.set_times(path, SetTime::Now, SetTime::At(5, 5), true),
            13 => fs.truncate(path, u64::from(self.tape.u16())),
            14 => fs.set_xattr(path, "user.a", b"value", 0, true),
            _ => fs.remove_xattr(path, "user.a", true),
        }
    }

    fn open(&mut self, choice: u8) -> Result<(), Errno> {
        let options = OpenOptions::new().read(choice & 1 == 0).write(choice & 2 == 0).create(choice & 4 != 0);
        let options = options.truncate(choice & 12 == 12).append(choice & 16 != 0);
        if self.files.len() + self.listings.len() >= OPEN_MAX {
            self.listings.pop_front();
            self.files.pop_front().map_or(Ok(()), File::close)?;
        }
        match choice >> 4 & 3 {
            3 if choice & 1 == 0 => self.files.push_back(self.fs.tmpfile(self.path(), &options)?),
            3 => self.listings.push_back(self.fs.read_dir(self.path())?),
            _ => self.files.push_back(self.fs.open(self.path(), &options)?),
        }
        Ok(())
    }

    fn use_file(&mut self, choice: u8) -> Result<(), Errno> {
        if choice & 0x30 == 0x30 {
            return self.use_listing(choice);
        }
        let Some(file) = self.files.back() else { return Ok(()) };
        let (offset, len) = (u64::from(self.tape.u16()), usize::from(self.tape.byte()) * 100);
        let mut bytes = vec![1; len];
        match choice & 31 {
            0..6 => assert!(file.read_at(offset, &mut bytes)? <= len),
            6..12 => assert!(file.write_at(offset, &bytes)? <= len),
            12 => assert!(file.read(&mut bytes)? <= len),
            13 => assert!(file.write(&bytes)? <= len),
            14 => file.write_all(&bytes)?,
            15 => assert!(is_possible(file.metadata()?.attr())),
            16 => file.set_len(offset)?,
            17 => file.sync_all()?,
            18 => file.sync_data()?,
            19 => file.allocate(0, offset, 10)?,
            20 => assert!(file.copy_to(offset, self.files.front().unwrap_or(file), 0, 10)? <= 10),
            21 => _ = file.seek(SeekFrom::End(-1))?,
            22 => _ = file.seek(SeekFrom::Data(offset))?,
            23 => _ = file.seek(SeekFrom::Hole(offset))?,
            // Waiting would deadlock: the only thread may hold the other lock itself.
            24 => file.flock(LockKind::Exclusive, false)?,
            25 => file.set_lock(true, &lock(offset), false)?,
            26 => _ = file.get_lock(false, &lock(offset))?,
            27 => self.files.rotate_left(1),
            28 => self.files.pop_back().map_or(Ok(()), File::close)?,
            29 => drop(self.files.pop_front()),
            30 => file.set_times(SetTime::Now, SetTime::Keep)?,
            _ => file.set_permissions(0o600)?,
        }
        Ok(())
    }

    fn use_listing(&mut self, choice: u8) -> Result<(), Errno> {
        let Some(listing) = self.listings.back_mut() else { return Ok(()) };
        match choice & 3 {
            0 | 1 => {
                for entry in listing.take(ENTRIES_MAX) {
                    let name = entry?.name;
                    assert!((1..=255).contains(&name.len()) && !name.contains(&b'/') && name != b"..");
                }
            }
            2 => listing.seek(self.tape.byte().into()),
            _ => drop(self.listings.pop_front()),
        }
        Ok(())
    }
}

fn lock(start: u64) -> Lock {
    Lock { kind: LockKind::Shared, start, len: 1, pid: 0 }
}
