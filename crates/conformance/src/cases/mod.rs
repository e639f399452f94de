//! The list: one file a subject, each with its cases in `CASES`.

use crate::case::Definition;

mod acls;
mod copies;
mod create;
mod data;
mod deadlocks;
mod directories;
mod links;
mod load;
mod lock_sections;
mod lock_waits;
mod locks;
mod mappings;
mod modes;
mod names;
#[cfg(test)]
mod operations_test;
mod owners;
mod rename;
mod rename_flags;
mod sizes;
mod special;
mod streams;
mod times;
mod tree;
mod unlinked;
mod xattrs;

const SUBJECTS: &[&[Definition]] = &[
    create::CASES,
    names::CASES,
    rename::CASES,
    rename_flags::CASES,
    links::CASES,
    directories::CASES,
    streams::CASES,
    times::CASES,
    modes::CASES,
    owners::CASES,
    data::CASES,
    sizes::CASES,
    copies::CASES,
    unlinked::CASES,
    locks::CASES,
    lock_sections::CASES,
    lock_waits::CASES,
    deadlocks::CASES,
    xattrs::CASES,
    acls::CASES,
    special::CASES,
    mappings::CASES,
    tree::CASES,
    load::CASES,
];

/// Every case, subject by subject.
pub fn all() -> impl Iterator<Item = Definition> {
    SUBJECTS.iter().copied().flatten().copied()
}

const fn case(name: &'static str, run: fn(&crate::case::Case<'_>) -> crate::case::Outcome) -> Definition {
    Definition { name, run }
}

/// What most cases use.
mod prelude {
    pub(super) use super::case;
    pub(super) use crate::case::{Case, Definition, Outcome, Stop, equal, holds, refused, refused_any, same_data};
    pub(super) use crate::client::{Errno, FileType, OFlags, SeekFrom, SetTime, Time};
}
