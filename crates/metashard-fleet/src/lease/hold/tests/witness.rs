//! Tests of who may judge others: since when every own renewal succeeded.

use super::*;

#[test]
fn renewing_since_lasts_over_prompt_renewals_and_starts_anew_after_a_failed_one() {
    let mut scene = Scene::held();
    let since = scene.hold.renewing_since(scene.now);
    assert_eq!(since, Some(scene.now.mono));
    scene.round(millis(900));
    assert_eq!(scene.hold.renewing_since(scene.now), since);

    scene.unanswered();
    assert_eq!(scene.hold.renewing_since(scene.now), None);
    scene.round(Duration::ZERO);
    assert_eq!(scene.hold.renewing_since(scene.now), None);
    scene.round(millis(10));

    assert_eq!(scene.hold.renewing_since(scene.now), Some(scene.now.mono));
}

#[test]
fn renewing_since_starts_anew_after_a_late_renewal() {
    let mut scene = Scene::held();

    let request = scene.request();
    // The process stands still with the answer on its way.
    let answer = scene.server.write(&request);
    scene.wait(Duration::from_secs(30));
    assert_eq!(scene.hold.renewing_since(scene.now), None);
    scene.hold.handle(scene.now, Input::Written(answer));
    assert_eq!(scene.hold.renewing_since(scene.now), None);
    scene.round(millis(10));

    assert_eq!(scene.hold.renewing_since(scene.now), Some(scene.now.mono));
}
