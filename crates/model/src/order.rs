//! Sorts the rows of tables.

/// Sorts by a figure, the largest first. Equal items keep their order.
pub fn largest_first<T>(items: &mut [T], figure: impl FnMut(&T) -> f64) {
    let mut from = order(&items.iter().map(figure).collect::<Vec<_>>());
    for place in 0..items.len() {
        // An earlier swap may have moved the item: find its present place.
        while from[place] < place {
            from[place] = from[from[place]];
        }
        items.swap(place, from[place]);
    }
}

/// This is not generic, so that sorting is compiled once and not for each type.
fn order(figures: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..figures.len()).collect();
    order.sort_by(|a, b| figures[*b].total_cmp(&figures[*a]));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_is_first_and_equal_items_keep_their_order() {
        let mut rows = [("a", 1.0), ("b", 3.0), ("c", 2.0), ("d", 3.0), ("e", -1.0), ("f", 2.0)];
        largest_first(&mut rows, |(_, figure)| *figure);
        assert_eq!(rows.map(|row| row.0).concat(), "bdcfae");
        largest_first(&mut [(); 0], |()| 0.0);
    }
}
