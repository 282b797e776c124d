//! The data of each location, in a table by the locations' addresses. The event path looks here first, because asking Score-P
//! costs more than all the rest of an event.

use crate::location_data::LocationData;
use scorep_abi::Location;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

/// A location and its data.
struct Place {
    /// The location's address, or [`FREE`], [`TAKEN`] or [`CLOSED`], which are not addresses of locations.
    location: AtomicPtr<Location>,
    data: AtomicPtr<LocationData>,
}

/// The place holds no location.
const FREE: *mut Location = without_provenance_mut(1);
/// The place is being filled.
const TAKEN: *mut Location = without_provenance_mut(2);
/// The place stays empty from now on.
const CLOSED: *mut Location = without_provenance_mut(3);

const PLACES_LOG2: u32 = 10;
static PLACES: [Place; 1 << PLACES_LOG2] = [const { Place::free() }; 1 << PLACES_LOG2];
/// The first location's place. Many programs have no other location, and this place need not be searched for.
static FIRST: Place = Place::free();

impl Place {
    const fn free() -> Place {
        Place { location: AtomicPtr::new(FREE), data: AtomicPtr::new(null_mut()) }
    }

    #[inline(always)]
    fn is_of(&self, location: *const Location) -> bool {
        // Pairs with the release in `remember`.
        std::ptr::eq(self.location.load(Ordering::Acquire), location)
    }
}

/// Returns the only place in the table where a location can be.
#[inline(always)]
fn place_of(location: *const Location) -> &'static Place {
    // The upper bits of this product depend on all bits of the address. The shift leaves an index into the table.
    &PLACES[((location.addr() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - PLACES_LOG2)) as usize]
}

#[inline(always)]
pub fn find(location: *const Location) -> Option<&'static LocationData> {
    let is_first = FIRST.is_of(location);
    let place = if is_first { &FIRST } else { place_of(location) };
    let is_found = is_first || place.is_of(location);
    // SAFETY: `remember` stored the data, which are never null, before the location's address. They are never freed, and another
    // location gets the place only after this one has had its last event.
    is_found.then(|| unsafe {
        let data = place.data.load(Ordering::Relaxed);
        std::hint::assert_unchecked(!data.is_null());
        &*data
    })
}

/// Remembers a location's data, unless another location occupies its place. In that case, every event of the location asks
/// Score-P for the data.
pub fn remember(location: *const Location, data: &'static LocationData) {
    let mut places = [&FIRST, place_of(location)].into_iter();
    let try_take = |place: &&Place| {
        place.location.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
    };
    if let Some(place) = places.find(try_take) {
        place.data.store(std::ptr::from_ref(data).cast_mut(), Ordering::Relaxed);
        let to = location.cast_mut();
        // This fails if `forget_all` was called in the meantime.
        _ = place.location.compare_exchange(TAKEN, to, Ordering::Release, Ordering::Relaxed);
    }
}

/// Forgets a location, because another one may get its address.
pub fn forget(location: *const Location) {
    for place in [&FIRST, place_of(location)] {
        // Pairs with the acquire in `remember`: another location's data are stored after the last use of this one's.
        _ = place.location.compare_exchange(location.cast_mut(), FREE, Ordering::Release, Ordering::Relaxed);
    }
}

/// Makes the table find and remember no location from now on.
pub fn forget_all() {
    for place in PLACES.iter().chain([&FIRST]) {
        place.location.store(CLOSED, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_ring::TestRing;

    /// This is a single test because the whole process shares the table.
    #[test]
    fn a_location_is_found_from_when_it_is_remembered_until_it_is_forgotten() {
        let [first, second, third] =
            [(); 3].map(|()| &Box::leak(Box::new(TestRing::new())).data as &'static LocationData);
        let location = |number: usize| without_provenance_mut::<Location>(number * 64);
        let has = |number: usize, data: &LocationData| {
            find(location(number)).is_some_and(|found| std::ptr::eq(found, data))
        };
        assert!(find(location(100)).is_none());
        remember(location(100), first);
        remember(location(200), second);
        assert!(has(100, first) && has(200, second));
        // Another location with the same place is not remembered, so that its data come from Score-P.
        let same = (201..)
            .find(|number| std::ptr::eq(place_of(location(*number)), place_of(location(200))))
            .unwrap();
        remember(location(same), third);
        assert!(find(location(same)).is_none() && has(200, second));
        forget(location(200));
        remember(location(same), third);
        assert!(find(location(200)).is_none() && has(same, third) && has(100, first));
        // When the first location is forgotten, its entry is free for another one, too.
        forget(location(100));
        remember(location(200), second);
        assert!(find(location(100)).is_none() && has(200, second));
        forget_all();
        remember(location(100), first);
        assert!([100, 200, same].iter().all(|number| find(location(*number)).is_none()));
    }
}
