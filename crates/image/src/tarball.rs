//! The entries of a tar, with long names and the POSIX format's records applied.
//!
//! The library's own way to apply them reads names of any length into memory; here they are bounded.

use std::{cell::Cell, io::Read};

use tar::{Archive, EntryType, PaxExtensions};

use crate::{Error, Result, source::broken, stoppable::Observed};

/// Headers and contents begin at multiples of this.
const BLOCK_LEN: u64 = 512;
/// Length of a long name, or of all records of an entry. Paths have 4096 bytes.
const RECORDS_LEN_MAX: u64 = 1 << 20;

/// An entry of a tar.
#[derive(Clone, Debug, Default)]
pub(crate) struct Member {
    pub(crate) path: Vec<u8>,
    /// Where a link leads.
    pub(crate) target: Vec<u8>,
    pub(crate) mode: u32,
    pub(crate) uid: u64,
    pub(crate) gid: u64,
    /// Seconds since 1970.
    pub(crate) mtime: i64,
    pub(crate) len_bytes: u64,
}

/// What the entries before an entry say about it.
#[derive(Default)]
struct Records {
    path: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
    uid: Option<u64>,
    gid: Option<u64>,
    mtime: Option<i64>,
}

/// Calls `handle` for each entry of the tar `from`, with its content. `left` is how many entries may follow, those that
/// have names and records of others among them.
///
/// # Errors
/// Returns an error if the tar is broken or beyond a limit, and that of `handle`.
pub(crate) fn for_each(
    from: impl Read,
    left: &mut u64,
    mut handle: impl FnMut(EntryType, &Member, &mut dyn Read) -> Result<()>,
) -> Result<()> {
    let read_bytes = Cell::new(0);
    let count = |bytes: &[u8]| read_bytes.set(read_bytes.get() + bytes.len() as u64);
    let mut archive = Archive::new(Observed { from, observe: count });
    let mut records = Records::default();
    let mut end_bytes = 0_u64;
    for entry in archive.entries().map_err(broken)?.raw(true) {
        let mut entry = match entry {
            Ok(entry) => entry,
            // umoci and others do not fill the last block; what was read was complete.
            Err(_) if is_padding(end_bytes, read_bytes.get()) => break,
            Err(error) => return Err(broken(error)),
        };
        end_bytes = entry.raw_file_position().saturating_add(entry.size());
        *left = left.checked_sub(1).ok_or_else(|| Error::invalid("the image has too many entries"))?;
        let kind = entry.header().entry_type();
        match kind {
            EntryType::GNULongName => records.path = Some(name(&mut entry)?),
            EntryType::GNULongLink => records.target = Some(name(&mut entry)?),
            EntryType::XHeader => records.extend(&bounded(&mut entry)?)?,
            // Comments, such as the commit of `git archive`.
            EntryType::XGlobalHeader => {}
            EntryType::GNUSparse => return Err(sparse(&entry.path_bytes())),
            kind => {
                let header = entry.header();
                let before = std::mem::take(&mut records);
                let member = Member {
                    path: before.path.unwrap_or_else(|| entry.path_bytes().into_owned()),
                    target: before.target.or_else(|| entry.link_name_bytes().map(Into::into)).unwrap_or_default(),
                    mode: header.mode().map_err(broken)?,
                    uid: before.uid.map_or_else(|| header.uid(), Ok).map_err(broken)?,
                    gid: before.gid.map_or_else(|| header.gid(), Ok).map_err(broken)?,
                    mtime: match before.mtime {
                        Some(mtime) => mtime,
                        None => i64::try_from(header.mtime().map_err(broken)?).unwrap_or(0),
                    },
                    len_bytes: entry.size(),
                };
                handle(kind, &member, &mut entry)?;
            }
        }
    }
    Ok(())
}

/// Returns whether a stream that has ended at `read_bytes` lacks nothing but what fills the block of a content that has
/// ended at `end_bytes`.
fn is_padding(end_bytes: u64, read_bytes: u64) -> bool {
    let padding_bytes = end_bytes.wrapping_neg() % BLOCK_LEN;
    read_bytes.checked_sub(end_bytes).is_some_and(|after_bytes| after_bytes < padding_bytes)
}

impl Records {
    fn extend(&mut self, bytes: &[u8]) -> Result<()> {
        for record in PaxExtensions::new(bytes) {
            let record = record.map_err(broken)?;
            let value = record.value_bytes();
            let number = || std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
            match record.key_bytes() {
                b"path" => self.path = Some(value.to_vec()),
                b"linkpath" => self.target = Some(value.to_vec()),
                b"uid" => self.uid = number(),
                b"gid" => self.gid = number(),
                b"mtime" => {
                    let whole = value.split(|&byte| byte == b'.').next().unwrap_or_default();
                    self.mtime = std::str::from_utf8(whole).ok().and_then(|text| text.parse().ok());
                }
                // The length in the header is then another one, and what follows cannot be found by it.
                b"size" => return Err(Error::invalid("the archive has a file of more than 8 GiB, which is not read")),
                key if key.starts_with(b"GNU.sparse") => return Err(sparse(b"of the POSIX format")),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Reads a long name, which ends with a zero.
fn name(entry: &mut impl Read) -> Result<Vec<u8>> {
    let mut name = bounded(entry)?;
    if let Some(end) = name.iter().position(|&byte| byte == 0) {
        name.truncate(end);
    }
    Ok(name)
}

fn bounded(entry: &mut impl Read) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = entry.take(RECORDS_LEN_MAX + 1).read_to_end(&mut bytes);
    read.map_err(broken)?;
    if bytes.len() as u64 > RECORDS_LEN_MAX {
        return Err(Error::invalid(format!("the archive has a name of more than {RECORDS_LEN_MAX} bytes")));
    }
    Ok(bytes)
}

fn sparse(path: &[u8]) -> Error {
    let path = String::from_utf8_lossy(path);
    Error::invalid(format!("the archive has a sparse file ({path:?}), which is not read: make it without --sparse"))
}
