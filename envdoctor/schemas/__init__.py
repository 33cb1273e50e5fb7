"""Published descriptions of envdoctor's JSON documents."""
