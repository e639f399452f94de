//! A search for one stale answer: a program in each of two guests changes files, publishes the round, and looks at the
//! files of both.
//!
//! What is published is read past the guest's caches (O_DIRECT), so it says what has been complete before a look. Each
//! guest has files of its own; one file and one directory are changed by both, so that what a guest has cached of them
//! survives its own changes and must not survive those of the other.

use std::{
    env,
    error::Error,
    fs::{self, File},
    os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, symlink},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, UNIX_EPOCH},
};

use crate::guest::{Guest, Place};

/// The variable that makes a test the program in a guest: its member, its rounds, and the looks after each.
const ROLE: &str = "TRANSOM_TEST_SEARCH";
/// The name of that test.
pub(crate) const PROGRAM: &str = "search_in_a_guest";

/// The guests.
const MEMBERS: usize = 2;
/// Where each member's round is in the board: a block of its own, as O_DIRECT wants it.
const BLOCK: u64 = 4096;
/// O_DIRECT of x86-64 and arm64.
const O_DIRECT: i32 = if cfg!(target_arch = "aarch64") { 0o200_000 } else { 0o40_000 };

const KINDS: [&str; 9] = [
    "data",
    "listing",
    "absent name",
    "attributes",
    "link",
    "common data",
    "common name",
    "size",
    "link count of the directory",
];

/// What a search has come to.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) checks: u64,
    pub(crate) changes: u64,
    pub(crate) stale: Vec<String>,
}

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Makes the files of all members, at round 0, and the program.
pub(crate) fn prepare(place: &Place) {
    let share = place.path("share");
    for member in 0..MEMBERS {
        let record = share.join(member.to_string());
        fs::create_dir_all(record.join("names")).unwrap();
        fs::create_dir(record.join("dirs")).unwrap();
        fs::write(record.join("size"), "").unwrap();
        fs::write(record.join("names/0"), "").unwrap();
        fs::write(record.join("data"), 0_u64.to_le_bytes()).unwrap();
        File::create(record.join("times")).unwrap().set_modified(UNIX_EPOCH).unwrap();
        symlink("0", record.join("link")).unwrap();
        fs::create_dir_all(share.join("common")).unwrap();
        fs::write(share.join(format!("common/{member}.0")), "").unwrap();
    }
    fs::write(share.join("both"), [0; 8 * MEMBERS]).unwrap();
    fs::write(share.join("board"), vec![0; MEMBERS * BLOCK as usize]).unwrap();
    fs::copy(env::current_exe().unwrap(), share.join("program")).unwrap();
}

/// Runs the program in a guest.
pub(crate) fn run(guest: &mut Guest, member: usize, rounds: u64, looks: u64) -> Found {
    let said = guest.ask(&format!(
        "cd /share; {ROLE}='{member} {rounds} {looks}' ./program --exact {PROGRAM} --ignored --nocapture 2>&1"
    ));
    let figure = |name: &str| {
        let after = said.split_once(name).unwrap_or_else(|| panic!("{said}")).1;
        after.split_ascii_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{said}"))
    };
    let stale = said.split("STALE: ").skip(1).map(str::to_owned).collect();
    Found { checks: figure("checks "), changes: figure("changes "), stale }
}

/// The program in a guest. Does nothing elsewhere.
pub(crate) fn play() {
    let Ok(role) = env::var(ROLE) else { return };
    let words: Vec<u64> = role.split(' ').map(|word| word.parse().unwrap()).collect();
    let &[member, rounds, looks] = &*words else { panic!("{ROLE}={role}") };
    let found = Member::open(member as usize).and_then(|member| member.search(rounds, looks)).unwrap();
    for line in found.stale.iter().take(10) {
        println!("STALE: {line}");
    }
    println!("checks {} changes {} ", found.checks, found.changes);
}

struct Member {
    member: usize,
    board: File,
    /// The data of each member, which stays open.
    data: Vec<File>,
    both: File,
}

impl Member {
    fn open(member: usize) -> Result<Self> {
        let open = |path: &str| File::options().read(true).write(true).open(path);
        Ok(Self {
            member,
            board: File::options().read(true).write(true).custom_flags(O_DIRECT).open("board")?,
            data: (0..MEMBERS).map(|of| open(&format!("{of}/data"))).collect::<std::io::Result<_>>()?,
            both: open("both")?,
        })
    }

    /// Changes and looks, while another thread looks all the time: so requests are on their way when a change is made.
    fn search(&self, rounds: u64, looks: u64) -> Result<Found> {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let looker = scope.spawn(|| {
                let mut found = Found::default();
                while !is_over.load(Ordering::Relaxed) {
                    self.look(&mut found).unwrap();
                }
                found
            });
            let found = self.work(rounds, looks);
            is_over.store(true, Ordering::Relaxed);
            let (mut found, seen) = (found?, looker.join().unwrap());
            found.checks += seen.checks;
            found.stale.extend(seen.stale);
            Ok(found)
        })
    }

    fn work(&self, rounds: u64, looks: u64) -> Result<Found> {
        let mut found = Found::default();
        let mut block = Aligned([0; BLOCK as usize]);
        for round in 1..=rounds {
            self.change(round)?;
            block.0[..8].copy_from_slice(&round.to_le_bytes());
            self.board.write_all_at(&block.0, self.member as u64 * BLOCK)?;
            found.changes += 1;
            (0..looks).try_for_each(|_| self.look(&mut found))?;
        }
        Ok(found)
    }

    /// Looks at the files of all members.
    fn look(&self, found: &mut Found) -> Result<()> {
        let mut block = Aligned([0; BLOCK as usize]);
        for of in 0..MEMBERS {
            self.board.read_exact_at(&mut block.0, of as u64 * BLOCK)?;
            let least = u64::from_le_bytes(block.0[..8].try_into()?);
            self.compare(of, least, found)?;
        }
        Ok(())
    }

    fn change(&self, round: u64) -> Result<()> {
        let (record, before) = (self.member, round - 1);
        self.data[record].write_all_at(&round.to_le_bytes(), 0)?;
        fs::rename(format!("{record}/names/{before}"), format!("{record}/names/{round}"))?;
        self.both.write_all_at(&round.to_le_bytes(), 8 * record as u64)?;
        fs::rename(format!("common/{record}.{before}"), format!("common/{record}.{round}"))?;
        let times = File::options().write(true).open(format!("{record}/times"))?;
        times.set_modified(UNIX_EPOCH + Duration::from_secs(round))?;
        symlink(round.to_string(), format!("{record}/next"))?;
        fs::rename(format!("{record}/next"), format!("{record}/link"))?;
        File::options().write(true).open(format!("{record}/size"))?.write_all_at(b"x", before)?;
        fs::create_dir(format!("{record}/dirs/{round}"))?;
        Ok(())
    }

    /// Looks at the files of a member whose round `least` is complete.
    fn compare(&self, of: usize, least: u64, found: &mut Found) -> Result<()> {
        let (mut data, mut both) = ([0; 8], [0; 8]);
        self.data[of].read_exact_at(&mut data, 0)?;
        self.both.read_exact_at(&mut both, 8 * of as u64)?;
        // Between two entries of a listing the name may change; an old one never comes back.
        // To the end: only then the listing is cached.
        let listed = fs::read_dir(format!("{of}/names"))?.last().transpose()?;
        let listed = listed.map_or(Ok(least), |entry| entry.file_name().to_string_lossy().parse())?;
        let before = least.saturating_sub(1);
        let shown = |path: String| if least > 0 && exists(&path) { before } else { least };
        let look = [
            u64::from_le_bytes(data),
            listed,
            shown(format!("{of}/names/{before}")),
            fs::metadata(format!("{of}/times"))?.mtime().cast_unsigned(),
            fs::read_link(format!("{of}/link"))?.to_string_lossy().parse()?,
            u64::from_le_bytes(both),
            shown(format!("common/{of}.{before}")),
            fs::metadata(format!("{of}/size"))?.len(),
            // Some file systems do not count.
            fs::metadata(format!("{of}/dirs"))?.nlink().checked_sub(2).unwrap_or(least),
        ];
        found.checks += look.len() as u64;
        for (kind, seen) in KINDS.iter().zip(look).filter(|(_, seen)| *seen < least) {
            let who = self.member;
            found.stale.push(format!("guest {who} saw round {seen} in the {kind} of {of} after {least} was complete"));
        }
        Ok(())
    }
}

fn exists(path: &str) -> bool {
    Path::new(path).symlink_metadata().is_ok()
}

/// Memory for O_DIRECT.
#[repr(align(4096))]
struct Aligned([u8; BLOCK as usize]);
