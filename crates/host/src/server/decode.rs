//! Parses the parts of a request listed in the table from the copy of the message.

use transom_wire::{
    Name,
    limits::{FORGET_COUNT_MAX, SYMLINK_LEN_MAX, XATTR_NAME_LEN_MAX, XATTR_VALUE_LEN_MAX},
    operation::parts::{
        Bytes, ExtensionBytes, FileData, Ignored, ListOf, NameAndTarget, OneName, TwoNames, XattrName, XattrValue,
    },
    ops::{forget::ForgetOne, removemapping::RemovemappingOne},
};
use zerocopy::FromBytes;

use super::{
    request::Request,
    slices::{GuestSlice, GuestSlices},
};
use crate::Errno;

/// The strings that follow an operation's arguments.
pub trait Strings {
    /// Type passed to the file system.
    type Value<'a>;

    /// Parses the strings from the rest of a message.
    ///
    /// # Errors
    ///
    /// EINVAL for an invalid name or a string without NUL, and the errno of a limit that is exceeded.
    fn take<'a>(req: &mut Request<'a>) -> Result<Self::Value<'a>, Errno>;

    /// Returns the file names among the strings, in their order.
    fn names<'a>(_: &Self::Value<'a>) -> [Option<Name<'a>>; 2] {
        [None; 2]
    }
}

impl Strings for () {
    type Value<'a> = ();
    fn take<'a>(_: &mut Request<'a>) -> Result<(), Errno> {
        Ok(())
    }
}

impl Strings for OneName {
    type Value<'a> = Name<'a>;
    fn take<'a>(req: &mut Request<'a>) -> Result<Name<'a>, Errno> {
        req.name()
    }
    fn names<'a>(name: &Self::Value<'a>) -> [Option<Name<'a>>; 2] {
        [Some(*name), None]
    }
}

impl Strings for TwoNames {
    type Value<'a> = (Name<'a>, Name<'a>);
    fn take<'a>(req: &mut Request<'a>) -> Result<Self::Value<'a>, Errno> {
        Ok((req.name()?, req.name()?))
    }
    fn names<'a>((first, second): &Self::Value<'a>) -> [Option<Name<'a>>; 2] {
        [Some(*first), Some(*second)]
    }
}

impl Strings for NameAndTarget {
    /// The target has 1 to 4095 bytes.
    type Value<'a> = (Name<'a>, &'a [u8]);
    fn take<'a>(req: &mut Request<'a>) -> Result<Self::Value<'a>, Errno> {
        let (name, target) = (req.name()?, req.string()?);
        match target.len() {
            0 => Err(Errno::NOENT),
            1..=SYMLINK_LEN_MAX => Ok((name, target)),
            _ => Err(Errno::NAMETOOLONG),
        }
    }
    fn names<'a>((name, _): &Self::Value<'a>) -> [Option<Name<'a>>; 2] {
        [Some(*name), None]
    }
}

impl Strings for XattrName {
    /// Without NUL.
    type Value<'a> = &'a [u8];
    fn take<'a>(req: &mut Request<'a>) -> Result<&'a [u8], Errno> {
        match req.string()? {
            [] => Err(Errno::RANGE),
            name if name.len() > XATTR_NAME_LEN_MAX => Err(Errno::RANGE),
            name => Ok(name),
        }
    }
}

impl Strings for Ignored {
    type Value<'a> = ();
    fn take<'a>(req: &mut Request<'a>) -> Result<(), Errno> {
        req.string().map(drop)
    }
}

/// What follows an operation's strings.
pub trait Payload {
    /// Type passed to the file system.
    type Value<'a>;
    /// The list of buffers that the value refers to, if it is not part of the message.
    type Buffers<'a>: Default;

    /// Finds `size` bytes, as given in the arguments, in the driver's buffers.
    ///
    /// # Errors
    ///
    /// EINVAL if the request has fewer.
    fn find<'a>(_: &Request<'a>, _size: usize, _: &mut Self::Buffers<'a>) -> Result<(), Errno> {
        Ok(())
    }

    /// Parses `size` bytes or items, as given in the arguments, from the rest of a message. `buffers` are those that
    /// [`Payload::find`] found.
    ///
    /// # Errors
    ///
    /// EINVAL if the message is too short, and the errno of a limit that is exceeded.
    fn take<'a>(req: &mut Request<'a>, size: usize, buffers: &'a Self::Buffers<'_>) -> Result<Self::Value<'a>, Errno>;
}

impl Payload for () {
    type Value<'a> = ();
    type Buffers<'a> = ();
    fn take<'a>(_: &mut Request<'a>, _: usize, (): &'a ()) -> Result<(), Errno> {
        Ok(())
    }
}

impl Payload for ExtensionBytes {
    /// Extensions are passed in the context.
    type Value<'a> = ();
    type Buffers<'a> = ();
    fn take<'a>(req: &mut Request<'a>, _: usize, (): &'a ()) -> Result<(), Errno> {
        req.extensions()
    }
}

impl Payload for Bytes {
    type Value<'a> = &'a [u8];
    type Buffers<'a> = ();
    fn take<'a>(req: &mut Request<'a>, size: usize, (): &'a ()) -> Result<&'a [u8], Errno> {
        req.rest().get(..size).ok_or(Errno::INVAL)
    }
}

impl Payload for XattrValue {
    type Value<'a> = &'a [u8];
    type Buffers<'a> = ();
    fn take<'a>(req: &mut Request<'a>, size: usize, (): &'a ()) -> Result<&'a [u8], Errno> {
        if size > XATTR_VALUE_LEN_MAX { Err(Errno::TOOBIG) } else { Bytes::take(req, size, &()) }
    }
}

impl Payload for FileData {
    /// Buffers with exactly the number of bytes in the arguments.
    type Value<'a> = &'a [GuestSlice<'a>];
    type Buffers<'a> = GuestSlices<'a>;
    fn find<'a>(req: &Request<'a>, size: usize, buffers: &mut GuestSlices<'a>) -> Result<(), Errno> {
        req.data_slices(size, buffers)
    }
    fn take<'a>(_: &mut Request<'a>, _: usize, buffers: &'a GuestSlices<'_>) -> Result<Self::Value<'a>, Errno> {
        Ok(buffers)
    }
}

impl Payload for ListOf<RemovemappingOne> {
    type Value<'a> = &'a [RemovemappingOne];
    type Buffers<'a> = ();
    fn take<'a>(req: &mut Request<'a>, size: usize, (): &'a ()) -> Result<Self::Value<'a>, Errno> {
        let list = <[RemovemappingOne]>::ref_from_prefix_with_elems(req.rest(), size);
        list.map(|(list, _)| list).map_err(|_| Errno::INVAL)
    }
}

impl Payload for ListOf<ForgetOne> {
    /// As many as the message has: a forget has no reply that could report missing ones.
    type Value<'a> = &'a [ForgetOne];
    type Buffers<'a> = ();
    fn take<'a>(req: &mut Request<'a>, size: usize, (): &'a ()) -> Result<Self::Value<'a>, Errno> {
        let rest = req.rest();
        let count = size.min(FORGET_COUNT_MAX).min(rest.len() / size_of::<ForgetOne>());
        let list = <[ForgetOne]>::ref_from_prefix_with_elems(rest, count);
        list.map(|(list, _)| list).map_err(|_| Errno::INVAL)
    }
}
