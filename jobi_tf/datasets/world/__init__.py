"""`world`: facts about the world's countries and territories, shipped with the package; README.md says where from."""
