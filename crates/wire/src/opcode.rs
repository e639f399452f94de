//! The number of an operation. [`operation::table`](crate::operation) declares the operations.

/// Declares the operations: the enum [`Opcode`], and a type and a [`Row`] for each.
///
/// Those under `session` are served by the host's server, those under `requests` by a file system.
macro_rules! operations {
    (
        session { $($session:tt)* }
        requests { $($requests:tt)* }
    ) => {
        operations! { @names [] [] $($session)* @ $($requests)* }
        operations! { @rows $($session)* $($requests)* }
    };
    // Sorts the names of the operations into two lists.
    (@names [$($session:ident)*] []
        $(#[$doc:meta])* $name:ident = $number:literal, $text:literal $args:tt -> $reply:ty { $($columns:tt)* }
        $($rest:tt)*
    ) => {
        operations! { @names [$($session)* $name] [] $($rest)* }
    };
    (@names [$($session:ident)*] [] @ $(
        $(#[$doc:meta])* $name:ident = $number:literal, $text:literal $args:tt -> $reply:ty { $($columns:tt)* }
    )*) => {
        operations! { @lists [$($session)*] [$($name)*] }
    };
    (@lists [$($session:ident)*] [$($name:ident)*]) => {
        impl Opcode {
            /// Returns whether the operation begins or ends a session, and so is served by the server itself.
            pub const fn is_of_session(self) -> bool {
                matches!(self, $(Self::$session)|*)
            }
        }

        /// Calls `$callback!(Name)` for each operation that a file system serves, one after the other.
        #[macro_export]
        macro_rules! each_request {
            ($callback:ident) => { $($callback! { $name })* };
        }

        /// Calls `$callback!([context] session Name …; requests Name …)` once.
        #[macro_export]
        macro_rules! all_operations {
            ($callback:ident $context:tt) => { $callback! { $context session $($session)*; requests $($name)* } };
        }
    };
    (@rows $(
        $(#[$doc:meta])*
        $name:ident = $number:literal, $text:literal ($args:ty, $names:ty, $rest:ty) -> $reply:ty {
            runs: $runs:ident,
            changes: [$($what:ident $(if $change_if:ident ($($change_arg:tt)*))?),*],
            repeats: $repeats:ident $(($($repeats_arg:tt)*))?,
            $(effect: $effect:ident $(($made:ident $($made_by:ident)?))?,)?
            $(handles: [$($handle:ident $(if $handle_if:ident ($($handle_arg:tt)*))?),*],)?
            $(nodeids: [$($nodeid:ident),*],)?
            $(rest_size: $rest_size:ident,)?
            $(reply_size: $reply_size:ident,)?
            $(compat: $compat:ty,)?
        }
    )*) => {
        /// The number of an operation (`enum fuse_opcode`).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u32)]
        #[allow(missing_docs, reason = "the names are the specification's")]
        pub enum Opcode { $($name = $number,)* }

        impl Opcode {
            /// Every operation.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the operation with this number, if there is one.
            pub const fn from_u32(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// Returns the operation's row of the table.
            pub const fn row(self) -> &'static Row {
                match self { $(Self::$name => <$name as Operation>::ROW,)* }
            }
        }

        $(
            #[doc = concat!("The operation `", $text, "`.")]
            $(#[$doc])*
            #[derive(Debug, Clone, Copy)]
            pub struct $name;

            impl Operation for $name {
                const OPCODE: Opcode = Opcode::$name;
                const ROW: &'static Row = &Row {
                    opcode: Opcode::$name,
                    name: $text,
                    args_len: size_of::<$args>(),
                    compat_len: operations!(@option $(size_of::<$compat>())?),
                    names: <$names as Names>::COUNT,
                    rest: <$rest as Rest>::KIND,
                    rest_size_at: operations!(@option $(offset_of!($args, $rest_size))?),
                    reply: <$reply as ReplyBody>::SHAPE,
                    reply_size_at: operations!(@option $(offset_of!($args, $reply_size))?),
                    reply_nodeid_at: <$reply as ReplyBody>::NODEID_AT,
                    reply_handle_at: <$reply as ReplyBody>::HANDLE_AT,
                    reply_attr_at: <$reply as ReplyBody>::ATTR_AT,
                    nodeids: &[$($(offset_of!($args, $nodeid)),*)?],
                    handles: &[$($(HandleAt {
                        at: offset_of!($args, $handle),
                        when: operations!(@when $args, $($handle_if ($($handle_arg)*))?),
                    }),*)?],
                    runs: Runs::$runs,
                    changes: &[$(Change {
                        what: Changed::$what,
                        when: operations!(@when $args, $($change_if ($($change_arg)*))?),
                    }),*],
                    repeats: operations!(@when $args, $repeats $(($($repeats_arg)*))?),
                    effect: operations!(@effect $args, $($effect $(($made $($made_by)?))?)?),
                };
                type Args = $args;
                type Names = $names;
                type Rest = $rest;
                type Reply = $reply;
            }
        )*
    };
    (@option) => { None };
    (@option $value:expr) => { Some($value) };
    (@when $args:ty,) => { Condition::Always };
    (@when $args:ty, always) => { Condition::Always };
    (@when $args:ty, never) => { Condition::Never };
    (@when $args:ty, any_of($field:ident, $mask:expr)) => {
        Condition::AnyOf { at: offset_of!($args, $field), mask: $mask }
    };
    (@when $args:ty, any_of_except($field:ident, $mask:expr, $except:expr)) => {
        Condition::AnyOfExcept { at: offset_of!($args, $field), mask: $mask, except: $except }
    };
    (@when $args:ty, none_of($field:ident, $mask:expr)) => {
        Condition::NoneOf { at: offset_of!($args, $field), mask: $mask }
    };
    (@when $args:ty, either($one:ident $one_arg:tt, $other:ident $other_arg:tt)) => {
        Condition::Either(&[operations!(@when $args, $one $one_arg), operations!(@when $args, $other $other_arg)])
    };
    (@effect $args:ty,) => { Effect::None };
    (@effect $args:ty, $effect:ident) => { Effect::$effect };
    (@effect $args:ty, $effect:ident ($made:ident)) => { Effect::$effect(MadeType::$made) };
    (@effect $args:ty, $effect:ident ($made:ident $field:ident)) => {
        Effect::$effect(MadeType::$made(offset_of!($args, $field)))
    };
}
pub(crate) use operations;

pub use crate::operation::Opcode;

/// The number of every operation is smaller. Metrics have a slot for each number below it, and an input of the fuzzers
/// has a byte for one. Linux's operations reach 53.
pub const OPCODE_LIMIT: u32 = 64;

const _: () = {
    let mut index = 0;
    while index < Opcode::ALL.len() {
        assert!((Opcode::ALL[index] as u32) < OPCODE_LIMIT);
        index += 1;
    }
};

impl Opcode {
    /// Returns the operation's name in lower case, as it stands in metrics and logs.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// Returns whether requests are answered with nothing, not even an error.
    pub const fn has_no_reply(self) -> bool {
        !self.row().has_reply()
    }
}
