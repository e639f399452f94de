use std::thread;

use super::*;

#[test]
fn a_drain_ends_with_the_last_request_even_one_that_panics() {
    let in_flight = Arc::new(InFlight::default());
    for round in 0..200 {
        let ticket = in_flight.begin(0).unwrap();
        let request = thread::spawn(move || {
            let _ticket = ticket;
            assert!(round % 50 != 49, "a request panics, as this test wants");
        });
        in_flight.drain(|_| ());
        assert_eq!(in_flight.count(), 0);
        assert_eq!(request.join().is_err(), round % 50 == 49);
    }
}

#[test]
fn a_drain_names_those_that_wait() {
    let in_flight = Arc::new(InFlight::default());
    let request = Mutex::new(Some((in_flight.begin(0), in_flight.waits(Unique(7), 0))));
    in_flight.drain(|waiting| {
        assert_eq!(waiting, [Unique(7)]);
        drop(request.lock().unwrap().take());
    });
    let again = in_flight.waits(Unique(8), 1);
    drop((in_flight.waits(Unique(8), 1), again));
    assert!(in_flight.lock().waiting.is_empty());
}

#[test]
fn a_chain_is_taken_again_once_it_is_given_back_or_its_ring_is_drained() {
    let in_flight = Arc::new(InFlight::default());
    let last = QUEUE_SIZE_MAX as u16 - 1;
    for head in [0, 63, 64, last] {
        let ticket = in_flight.begin(head).unwrap();
        assert_eq!(in_flight.begin(head).err(), Some(OfferedTwice(head)));
        assert_eq!(in_flight.count(), 1, "a chain that is refused does not count");
        in_flight.give_back(head);
        drop((in_flight.begin(head).unwrap(), ticket));
    }
    in_flight.drain(|_| ());
    assert!(in_flight.begin(last).is_ok());
}

#[test]
fn whoever_waits_for_room_goes_on_with_the_first_that_ends() {
    let in_flight = Arc::new(InFlight::default());
    let mut tickets: Vec<_> = (0..REQUESTS_MAX as u16).map(|head| in_flight.begin(head).unwrap()).collect();
    let worker = thread::spawn({
        let in_flight = in_flight.clone();
        move || in_flight.wait_for_room()
    });
    while in_flight.lock().watchers == 0 {
        thread::yield_now();
    }
    assert!(!worker.is_finished());
    tickets.pop();
    worker.join().unwrap();
}

#[test]
fn a_request_that_is_set_aside_goes_on_with_its_ring_and_is_dropped_with_a_new_one() {
    for (outstanding, end) in [(1, Interrupted::ServeAgain), (0, Interrupted::Drop), (2, Interrupted::Drop)] {
        let in_flight = Arc::new(InFlight::default());
        let (ticket, waiting) = (in_flight.begin(3).unwrap(), in_flight.waits(Unique(7), 0));
        assert_eq!(waiting.interrupted(|_| panic!("nothing stops")), Interrupted::Answer);
        let interrupted = Mutex::new(false);
        thread::scope(|scope| {
            let request = scope.spawn(|| {
                while !*interrupted.lock().unwrap() {
                    thread::yield_now();
                }
                let end = waiting.interrupted(|unique| assert_eq!(unique, Unique(7)));
                drop((waiting, ticket));
                end
            });
            in_flight.drain_setting_aside(|_| *interrupted.lock().unwrap() = true);
            assert_eq!(in_flight.count(), 0);
            assert_eq!(in_flight.begin(3).err(), Some(OfferedTwice(3)), "the device keeps the chain");
            in_flight.resume(outstanding);
            assert_eq!(request.join().unwrap(), end);
        });
        assert_eq!((in_flight.count(), in_flight.begin(3).is_ok()), (0, end == Interrupted::Drop));
    }
}

#[test]
fn a_request_that_ends_settles_a_queue_and_one_that_does_not_is_counted() {
    let in_flight = Arc::new(InFlight::default());
    let ticket = in_flight.begin(0).unwrap();
    assert_eq!(in_flight.settle(Duration::from_millis(1)), 1);
    let ends = thread::spawn(move || drop(ticket));
    assert_eq!(in_flight.settle(Duration::from_secs(600)), 0);
    ends.join().unwrap();
    assert_eq!(in_flight.lock().watchers, 0);
}
