"""What softlook runs on can be told, and tried."""

from softlook.recipes.machine import doctor, info


def test_everything_a_bug_report_needs_is_told() -> None:
    assert info().keys() >= {"softlook", "python", "system", "device", "torch", "sacrebleu"}


def test_a_sound_machine_is_found_sound() -> None:
    assert [one.name for one in doctor() if not one.works] == []
